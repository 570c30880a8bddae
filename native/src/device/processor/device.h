// The host's own processors as a chip: memory that they share with everybody, a thread for each stream. A
// program's operations on host memory need no Device; this one is for ranks whose island has a library that
// runs on processors, and what simulated chips are made of.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "device/device.h"
#include "device/processor/queue.h"

namespace dicomm {

enum class CopyWay { to_host, to_chip, within };

// What streams and memory share with their device, and threads left behind keep. A kind of chip that is only
// modelled says here what its work costs.
struct ProcessorChip {
  explicit ProcessorChip(uint64_t bytes = 0) : memory_bytes(bytes) {}
  virtual ~ProcessorChip() = default;

  // Before a copy or a reduction is done. What it returns but OK is the chip's failure.
  virtual Status begin_piece() { return {}; }
  // When a copy that counts as begun at `begun` ends; 0: as soon as it is done.
  virtual Nanos end_of_copy(CopyWay, Nanos, size_t) { return 0; }

  const uint64_t memory_bytes;  // more is not allocated; 0: no limit
  const std::shared_ptr<ChipHealth> health = std::make_shared<ChipHealth>();
  std::mutex mutex;
  uint64_t used = 0;                           // bytes allocated
  std::map<const std::byte *, size_t> pinned;  // host memory, by where it begins
};

class ProcessorDevice : public Device {
 public:
  ProcessorDevice() : ProcessorDevice(0, std::make_shared<ProcessorChip>()) {}
  ~ProcessorDevice() override = default;

  const char *vendor() const override { return "cpu"; }
  int index() const override { return index_; }
  std::string describe() const override { return "the host's processors"; }
  DeviceCapabilities capabilities() const override { return {.reduces = true, .unified = true}; }

  Status allocate(size_t bytes, std::unique_ptr<Allocation> &out) override;
  Status allocate_pinned(size_t bytes, std::unique_ptr<Allocation> &out) override;
  // A program's arrays cannot be told from what would be on a chip: all memory is the chip's but what
  // allocate_pinned gave.
  bool owns(const void *data) const override;

  Status with_current(const std::function<Status()> &body) override { return body(); }
  // Its native() is a WorkQueue.
  Status make_stream(std::unique_ptr<Stream> &out) override;
  // Of a WorkQueue; null is the default stream, on which a program's own work is always done.
  Status wrap(void *vendor_stream, std::unique_ptr<Stream> &out) override;
  Status export_dmabuf(const void *data, size_t bytes, DmaBuf &out) override;
  Status close(int64_t timeout_ns) override;

 protected:
  ProcessorDevice(int index, std::shared_ptr<ProcessorChip> chip) : chip_(std::move(chip)), index_(index) {}

  const std::shared_ptr<ProcessorChip> chip_;

 private:
  const int index_;
  std::mutex mutex_;
  std::shared_ptr<WorkQueue> default_queue_;
  std::vector<std::weak_ptr<WorkQueue>> queues_;
};

}  // namespace dicomm
