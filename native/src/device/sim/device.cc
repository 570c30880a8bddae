#include "device/sim/device.h"

#include <cstdlib>
#include <functional>
#include <iterator>

#include "device/sim/stream.h"

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

class SimAllocation final : public Allocation {
 public:
  SimAllocation(std::shared_ptr<SimChip> chip, Memory memory, size_t size, bool pinned)
      : chip_(std::move(chip)), memory_(std::move(memory)), size_(size), pinned_(pinned) {}
  ~SimAllocation() override {
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
  std::shared_ptr<SimChip> chip_;
  Memory memory_;
  size_t size_;
  bool pinned_;
};

}  // namespace

Nanos SimChip::book(Nanos &engine_free, Nanos begun, size_t bytes) {
  const auto latency = static_cast<Nanos>(profile.copy_latency_us * kMicrosecond);
  const auto busy =
      profile.copy_gbs > 0 ? static_cast<Nanos>(static_cast<double>(bytes) / profile.copy_gbs) : 0;
  if (latency == 0 && busy == 0) return 0;
  std::lock_guard lock(mutex);
  engine_free = std::max(engine_free, begun) + busy;
  return engine_free + latency;
}

Status SimChip::work_once() {
  if (profile.breaks_at < 0 || pieces++ < profile.breaks_at) return {};
  return Status::make(DICOMM_DEVICE_FAILED, "the simulated chip ", profile.brand,
                      " broke, as it was told to");
}

SimDevice::SimDevice(SimProfile profile, int index)
    : index_(index), chip_(std::make_shared<SimChip>(std::move(profile))) {}

std::string SimDevice::describe() const {
  const SimProfile &profile = chip_->profile;
  const std::string memory =
      profile.memory_bytes == 0 ? std::string("no limit") : concat(profile.memory_bytes >> 20, " MiB");
  return concat(profile.brand, " ", index_, ": simulated, ", profile.tflops, " TFLOP/s, memory ", memory);
}

Status SimDevice::allocate(size_t bytes, std::unique_ptr<Allocation> &out) {
  DICOMM_TRY(chip_->health->status());
  const uint64_t limit = chip_->profile.memory_bytes;
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
    return Status::make(DICOMM_NO_MEMORY, describe(), ": this host has no ", bytes, " bytes to stand for it");
  }
  out = std::make_unique<SimAllocation>(chip_, std::move(memory), bytes, false);
  return {};
}

Status SimDevice::allocate_pinned(size_t bytes, std::unique_ptr<Allocation> &out) {
  DICOMM_TRY(chip_->health->status());
  Memory memory = take(bytes);
  if (!memory) return Status::make(DICOMM_NO_MEMORY, "no ", bytes, " bytes of host memory");
  {
    std::lock_guard lock(chip_->mutex);
    chip_->pinned[static_cast<const std::byte *>(memory.get())] = bytes;
  }
  out = std::make_unique<SimAllocation>(chip_, std::move(memory), bytes, true);
  return {};
}

bool SimDevice::owns(const void *data) const {
  if (data == nullptr) return false;
  const auto *at = static_cast<const std::byte *>(data);
  std::lock_guard lock(chip_->mutex);
  const auto after = chip_->pinned.upper_bound(at);
  if (after == chip_->pinned.begin()) return true;
  const auto &[begin, size] = *std::prev(after);
  return static_cast<size_t>(at - begin) >= size;
}

Status SimDevice::make_stream(std::unique_ptr<Stream> &out) {
  DICOMM_TRY(chip_->health->status());
  auto queue = std::make_shared<SimQueue>(chip_->health);
  std::lock_guard lock(mutex_);
  std::erase_if(queues_, [](const auto &one) { return one.expired(); });
  queues_.push_back(queue);
  out = std::make_unique<SimStream>(chip_, std::move(queue), true);
  return {};
}

Status SimDevice::wrap(void *vendor_stream, std::unique_ptr<Stream> &out) {
  DICOMM_TRY(chip_->health->status());
  std::lock_guard lock(mutex_);
  std::shared_ptr<SimQueue> queue;
  for (const auto &one : queues_)
    if (auto held = one.lock(); held && held.get() == vendor_stream) queue = held;
  if (vendor_stream == nullptr) {
    if (!default_queue_) {
      default_queue_ = std::make_shared<SimQueue>(chip_->health);
      queues_.push_back(default_queue_);
    }
    queue = default_queue_;
  }
  if (!queue) return Status::make(DICOMM_INVALID_ARGUMENT, describe(), ": not a stream of this chip");
  out = std::make_unique<SimStream>(chip_, std::move(queue), false);
  return {};
}

Status SimDevice::export_dmabuf(const void *, size_t, DmaBuf &) {
  return Status::make(DICOMM_NOT_SUPPORTED, "no network card reaches the memory of a simulated chip");
}

Status SimDevice::close(int64_t timeout_ns) {
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
