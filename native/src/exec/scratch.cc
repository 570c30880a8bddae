#include "exec/scratch.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace dicomm {

namespace {

constexpr uint64_t kLine = 64;
constexpr uint64_t kHugePage = 2 << 20;

std::byte *allocate(uint64_t bytes) {
  const uint64_t alignment = bytes >= kHugePage ? kHugePage : kLine;
  void *data = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (data == nullptr) throw std::bad_alloc();
  // One page fault per 2 MiB instead of 512; without huge pages nothing changes.
  if (alignment == kHugePage) ::madvise(data, bytes, MADV_HUGEPAGE);
  return static_cast<std::byte *>(data);
}

class HostMemory final : public ScratchSource {
 public:
  std::byte *allocate(uint64_t bytes) override { return dicomm::allocate(bytes); }
  void free(std::byte *data) override { std::free(data); }
};

}  // namespace

ScratchPool::ScratchPool() : source_(std::make_unique<HostMemory>()), pooled_(kPooled) {}

Scratch::~Scratch() {
  if (pool_) {
    pool_->give({data_, capacity_});
  } else {
    std::free(data_);
  }
}

ScratchPool::~ScratchPool() {
  for (const Idle &memory : idle_) source_->free(memory.data);
}

Scratch ScratchPool::take(uint64_t bytes) {
  Scratch scratch;
  if (bytes == 0) return scratch;
  scratch.capacity_ = bytes;
  if (bytes >= pooled_) {
    scratch.pool_ = shared_from_this();
    const std::lock_guard lock(mutex_);
    const auto fits = [&](const Idle &idle) { return idle.capacity >= bytes && idle.capacity / 2 <= bytes; };
    const auto found = std::find_if(idle_.rbegin(), idle_.rend(), fits);
    if (found != idle_.rend()) {
      scratch.data_ = found->data;
      scratch.capacity_ = found->capacity;
      kept_ -= found->capacity;
      idle_.erase(std::next(found).base());
      return scratch;
    }
  }
  scratch.data_ = source_->allocate(bytes);
  return scratch;
}

void ScratchPool::give(Idle memory) {
  // Nothing: its allocation failed. And what alone is more than is kept must not push out the rest.
  if (memory.data == nullptr) return;
  if (memory.capacity > kKeep) return source_->free(memory.data);
  const std::lock_guard lock(mutex_);
  idle_.push_back(memory);
  kept_ += memory.capacity;
  while (kept_ > kKeep) {
    kept_ -= idle_.front().capacity;
    source_->free(idle_.front().data);
    idle_.erase(idle_.begin());
  }
}

}  // namespace dicomm
