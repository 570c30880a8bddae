#include "transport/verbs/memory.h"

#include <errno.h>
#include <sys/mman.h>

#include <utility>

namespace dicomm {

Pinned::~Pinned() {
  for (size_t i = 0; i < kMaxPorts; ++i)
    if (regions_[i] != nullptr) ports_[i]->deregister(regions_[i]);
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

Status Pinned::allocate(size_t bytes) {
  void *const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    return Status::system_failure(DICOMM_NO_MEMORY, errno, concat("cannot map ", bytes, " bytes for RDMA"));
  // A child that writes first would leave us other pages than the card has.
  ::madvise(data, bytes, MADV_DONTFORK);
  data_ = static_cast<std::byte *>(data);
  bytes_ = bytes;
  return {};
}

Status Pinned::register_with(const VerbsPort &port, size_t index) {
  if (regions_[index] != nullptr) return {};
  ports_[index] = &port;
  return port.register_memory(data_, bytes_, kBothWays, regions_[index]);
}

Status FrameMemory::allocate(uint32_t depth) {
  depth_ = depth;
  return pinned_.allocate((size_t{depth} + 1 + places()) * kVerbsFrameBytes);
}

Status StagingPool::take(size_t port, Pinned *&out) {
  out = nullptr;
  if (idle_.empty()) {
    if (all_.size() == most_) {
      awaited_ = true;
      return {};
    }
    auto buffer = std::make_unique<Pinned>();
    DICOMM_TRY(buffer->allocate(kVerbsMaxPayload));
    idle_.push_back(buffer.get());
    all_.push_back(std::move(buffer));
  }
  DICOMM_TRY(idle_.back()->register_with(*ports_[port], port));
  out = idle_.back();
  idle_.pop_back();
  return {};
}

}  // namespace dicomm
