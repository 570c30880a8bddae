// A chip whose run time has the interface of CUDA's.
#pragma once

#include <memory>
#include <mutex>
#include <set>

#include "device/cuda/runtime.h"
#include "device/device.h"

namespace dicomm {

// What streams, events and memory share with their device.
struct CudaChip {
  CudaChip(std::shared_ptr<const CudaRuntime> made, int number) : api(std::move(made)), index(number) {}

  const std::shared_ptr<const CudaRuntime> api;
  const int index;
  std::mutex mutex;
  std::set<void *> streams;  // our own
  bool left_behind = false;  // close timed out: nothing is waited for or given back any more
};

class CudaDevice final : public Device {
 public:
  static Status open(const CudaMember &member, int index, std::unique_ptr<Device> &out);
  ~CudaDevice() override = default;

  const char *vendor() const override { return chip_->api->member().vendor.c_str(); }
  int index() const override { return chip_->index; }
  std::string describe() const override;
  DeviceCapabilities capabilities() const override {
    return {.exports_dmabuf = exports_dmabuf_, .sees_card_writes = ordered_ || flushes_card_writes_};
  }

  std::string bus_address() const override;

  Status allocate(size_t bytes, std::unique_ptr<Allocation> &out) override;
  Status allocate_pinned(size_t bytes, std::unique_ptr<Allocation> &out) override;
  bool owns(const void *data) const override;
  Status with_current(const std::function<Status()> &body) override;
  Status make_stream(std::unique_ptr<Stream> &out) override;
  Status wrap(void *vendor_stream, std::unique_ptr<Stream> &out) override;
  Status export_dmabuf(const void *data, size_t bytes, DmaBuf &out) override;
  uint64_t allocation_number(const void *data) const override;
  Status see_card_writes() override;
  Status close(int64_t timeout_ns) override;

 private:
  explicit CudaDevice(std::shared_ptr<CudaChip> chip) : chip_(std::move(chip)) {}
  // An attribute of the driver's, 0 where it cannot be had.
  int attribute(int which) const;

  const std::shared_ptr<CudaChip> chip_;
  bool exports_dmabuf_ = false;
  bool ordered_ = false;  // what cards write, by the hardware, with the chip's own work
  bool flushes_card_writes_ = false;
};

// The chip is the run time's current one on this thread for as long as this lives.
class CudaCurrent {
 public:
  explicit CudaCurrent(const CudaChip &chip);
  ~CudaCurrent();
  CudaCurrent(const CudaCurrent &) = delete;
  const Status &status() const { return status_; }

 private:
  const CudaRuntime &api_;
  int before_ = -1;  // to be put back; -1: nothing is
  Status status_;
};

}  // namespace dicomm
