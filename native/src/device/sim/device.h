// A chip that exists on any machine: host memory stands for its memory, a thread for each of its streams.
//
// What it models: the size of its memory, and copies between host and chip, which share one copy engine each
// way. Reductions and copies within the chip take as long as this host needs for them.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "device/device.h"
#include "device/sim/profile.h"
#include "device/sim/queue.h"

namespace dicomm {

// What streams and memory share with their device, and threads left behind keep.
struct SimChip {
  explicit SimChip(SimProfile made) : profile(std::move(made)) {}

  // When a copy that counts as begun at `begun` ends in the model.
  Nanos book(Nanos &engine_free, Nanos begun, size_t bytes);
  // DEVICE_FAILED from the profile's breaks_at on.
  Status work_once();

  const SimProfile profile;
  const std::shared_ptr<SimHealth> health = std::make_shared<SimHealth>();
  std::atomic<int64_t> pieces{0};  // of work done
  std::mutex mutex;
  Nanos to_host_free = 0;  // when the copy engines have done what they have to
  Nanos to_device_free = 0;
  uint64_t used = 0;                           // bytes allocated
  std::map<const std::byte *, size_t> pinned;  // host memory, by where it begins
};

class SimDevice final : public Device {
 public:
  SimDevice(SimProfile profile, int index);
  ~SimDevice() override = default;

  const char *vendor() const override { return chip_->profile.brand.c_str(); }
  int index() const override { return index_; }
  std::string describe() const override;
  DeviceCapabilities capabilities() const override { return {.reduces = true, .unified = true}; }

  Status allocate(size_t bytes, std::unique_ptr<Allocation> &out) override;
  Status allocate_pinned(size_t bytes, std::unique_ptr<Allocation> &out) override;
  // A program's arrays cannot be told from what would be on a chip: all memory is the chip's but what
  // allocate_pinned gave.
  bool owns(const void *data) const override;

  Status with_current(const std::function<Status()> &body) override { return body(); }
  Status make_stream(std::unique_ptr<Stream> &out) override;
  // Of a SimQueue; null is the default stream, on which a program's own work is always done.
  Status wrap(void *vendor_stream, std::unique_ptr<Stream> &out) override;
  Status export_dmabuf(const void *data, size_t bytes, DmaBuf &out) override;
  Status close(int64_t timeout_ns) override;

 private:
  const int index_;
  const std::shared_ptr<SimChip> chip_;
  std::mutex mutex_;
  std::shared_ptr<SimQueue> default_queue_;
  std::vector<std::weak_ptr<SimQueue>> queues_;
};

}  // namespace dicomm
