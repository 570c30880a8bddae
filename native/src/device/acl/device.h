// An Ascend chip.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "device/acl/reporter.h"
#include "device/acl/runtime.h"
#include "device/device.h"

namespace dicomm {

// What streams, events and memory share with their device.
struct AclChip {
  AclChip(std::shared_ptr<const AclRuntime> made, int number) : api(std::move(made)), index(number) {}

  ~AclChip();
  // Destroys the events that nothing waits for any more. The run time wants an event to live until then.
  void sweep();

  const std::shared_ptr<const AclRuntime> api;
  const int index;
  void *context = nullptr;  // the chip's default one, which the trainer uses, too
  std::unique_ptr<AclReporter> reporter;
  std::mutex mutex;
  std::set<void *> streams;     // our own
  std::vector<void *> retired;  // events whose owner has gone
  bool left_behind = false;     // close timed out: nothing is waited for or given back any more
};

class AclDevice final : public Device {
 public:
  static Status open(const std::vector<std::string> &files, int index, std::unique_ptr<Device> &out);
  ~AclDevice() override = default;

  const char *vendor() const override { return "ascend"; }
  int index() const override { return chip_->index; }
  std::string describe() const override;
  DeviceCapabilities capabilities() const override { return {}; }

  Status allocate(size_t bytes, std::unique_ptr<Allocation> &out) override;
  Status allocate_pinned(size_t bytes, std::unique_ptr<Allocation> &out) override;
  bool owns(const void *data) const override;
  Status with_current(const std::function<Status()> &body) override;
  Status make_stream(std::unique_ptr<Stream> &out) override;
  Status wrap(void *vendor_stream, std::unique_ptr<Stream> &out) override;
  Status export_dmabuf(const void *data, size_t bytes, DmaBuf &out) override;
  Status close(int64_t timeout_ns) override;

 private:
  explicit AclDevice(std::shared_ptr<AclChip> chip) : chip_(std::move(chip)) {}

  const std::shared_ptr<AclChip> chip_;
};

// The chip's context is the thread's current one for as long as this lives.
class AclCurrent {
 public:
  explicit AclCurrent(const AclChip &chip);
  ~AclCurrent();
  AclCurrent(const AclCurrent &) = delete;
  const Status &status() const { return status_; }

 private:
  const AclRuntime &api_;
  void *before_ = nullptr;  // to be put back; null: the thread had none, or this very one
  Status status_;
};

}  // namespace dicomm
