// A chip that exists on any machine: this host's processors stand for it.
//
// What it models: the size of its memory, and copies between host and chip, which share one copy engine each
// way. Reductions and copies within the chip take as long as this host needs for them.
#pragma once

#include <atomic>

#include "device/processor/device.h"
#include "device/sim/profile.h"

namespace dicomm {

class SimChip final : public ProcessorChip {
 public:
  explicit SimChip(SimProfile made) : ProcessorChip(made.memory_bytes), profile(std::move(made)) {}

  // DEVICE_FAILED from the profile's breaks_at on.
  Status begin_piece() override;
  Nanos end_of_copy(CopyWay way, Nanos begun, size_t bytes) override;

  const SimProfile profile;

 private:
  std::atomic<int64_t> pieces_{0};               // of work done
  Nanos to_host_free_ = 0, to_device_free_ = 0;  // when the copy engines have done what they have to
};

class SimDevice final : public ProcessorDevice {
 public:
  SimDevice(SimProfile profile, int index)
      : SimDevice(index, std::make_shared<SimChip>(std::move(profile))) {}

  const char *vendor() const override { return profile_.brand.c_str(); }
  std::string describe() const override;

 private:
  SimDevice(int index, const std::shared_ptr<SimChip> &chip)
      : ProcessorDevice(index, chip), profile_(chip->profile) {}

  const SimProfile &profile_;  // the chip's
};

}  // namespace dicomm
