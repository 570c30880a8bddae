#include "device/processor/device.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iterator>

#include "device/processor/stream.h"

namespace dicomm {

namespace {

constexpr size_t kAlignment = 256;  // as vendors' allocators give at least

struct Free {
  void operator()(void *data) const { std::free(data); }
};
using Memory = std::unique_ptr<void, Free>;

Memory take(size_t bytes) {
  void *data = nullptr;
  if (posix_memalign(&data, kAlignment, std::max<size_t>(bytes, 1)) != 0) return nullptr;
  return Memory(data);
}

class HostAllocation final : public Allocation {
 public:
  HostAllocation(std::shared_ptr<ProcessorChip> chip, Memory memory, size_t size, bool pinned)
      : chip_(std::move(chip)), memory_(std::move(memory)), size_(size), pinned_(pinned) {}
  ~HostAllocation() override {
    std::lock_guard lock(chip_->mutex);
    if (pinned_) {
      chip_->pinned.erase(static_cast<const std::byte *>(memory_.get()));
    } else {
      chip_->used -= size_;
    }
  }
  void *data() const override { return memory_.get(); }
  size_t size() const override { return size_; }

 private:
  std::shared_ptr<ProcessorChip> chip_;
  Memory memory_;
  size_t size_;
  bool pinned_;
};

}  // namespace

Status ProcessorDevice::allocate(size_t bytes, std::unique_ptr<Allocation> &out) {
  DICOMM_TRY(chip_->health->status());
  const uint64_t limit = chip_->memory_bytes;
  {
    std::lock_guard lock(chip_->mutex);
    if (limit != 0 && bytes > limit - chip_->used)
      return Status::make(DICOMM_NO_MEMORY, describe(), ": ", bytes, " bytes wanted, ", limit - chip_->used,
                          " left");
    chip_->used += bytes;
  }
  Memory memory = take(bytes);
  if (!memory) {
    std::lock_guard lock(chip_->mutex);
    chip_->used -= bytes;
    return Status::make(DICOMM_NO_MEMORY, describe(), ": this host has no ", bytes, " bytes for it");
  }
  out = std::make_unique<HostAllocation>(chip_, std::move(memory), bytes, false);
  return {};
}

Status ProcessorDevice::allocate_pinned(size_t bytes, std::unique_ptr<Allocation> &out) {
  DICOMM_TRY(chip_->health->status());
  Memory memory = take(bytes);
  if (!memory) return Status::make(DICOMM_NO_MEMORY, "no ", bytes, " bytes of host memory");
  {
    std::lock_guard lock(chip_->mutex);
    chip_->pinned[static_cast<const std::byte *>(memory.get())] = bytes;
  }
  out = std::make_unique<HostAllocation>(chip_, std::move(memory), bytes, true);
  return {};
}

bool ProcessorDevice::owns(const void *data) const {
  if (data == nullptr) return false;
  const auto *at = static_cast<const std::byte *>(data);
  std::lock_guard lock(chip_->mutex);
  const auto after = chip_->pinned.upper_bound(at);
  if (after == chip_->pinned.begin()) return true;
  const auto &[begin, size] = *std::prev(after);
  return static_cast<size_t>(at - begin) >= size;
}

Status ProcessorDevice::make_stream(std::unique_ptr<Stream> &out) {
  DICOMM_TRY(chip_->health->status());
  auto queue = std::make_shared<WorkQueue>(chip_->health);
  std::lock_guard lock(mutex_);
  std::erase_if(queues_, [](const auto &one) { return one.expired(); });
  queues_.push_back(queue);
  out = std::make_unique<ProcessorStream>(chip_, std::move(queue), true);
  return {};
}

Status ProcessorDevice::wrap(void *vendor_stream, std::unique_ptr<Stream> &out) {
  DICOMM_TRY(chip_->health->status());
  std::lock_guard lock(mutex_);
  std::shared_ptr<WorkQueue> queue;
  for (const auto &one : queues_)
    if (auto held = one.lock(); held && held.get() == vendor_stream) queue = held;
  if (vendor_stream == nullptr) {
    if (!default_queue_) {
      default_queue_ = std::make_shared<WorkQueue>(chip_->health);
      queues_.push_back(default_queue_);
    }
    queue = default_queue_;
  }
  if (!queue) return Status::make(DICOMM_INVALID_ARGUMENT, describe(), ": not a stream of this chip");
  out = std::make_unique<ProcessorStream>(chip_, std::move(queue), false);
  return {};
}

Status ProcessorDevice::export_dmabuf(const void *, size_t, DmaBuf &) {
  return Status::make(DICOMM_NOT_SUPPORTED, "no network card reaches the memory of ", describe(),
                      " without a copy");
}

Status ProcessorDevice::close(int64_t timeout_ns) {
  const Nanos deadline = timeout_ns == DICOMM_TIMEOUT_NEVER ? kNever : deadline_after(timeout_ns);
  std::lock_guard lock(mutex_);
  Status status;
  for (const auto &one : queues_) {
    const auto queue = one.lock();
    if (!queue || queue->drain(deadline)) continue;
    queue->abandon();
    status = Status::make(DICOMM_TIMED_OUT, describe(), ": work enqueued on it did not end in time");
  }
  return status;
}

}  // namespace dicomm
