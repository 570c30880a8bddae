#include "device/sim/device.h"

#include <algorithm>

namespace dicomm {

Nanos SimChip::end_of_copy(CopyWay way, Nanos begun, size_t bytes) {
  if (way == CopyWay::within) return 0;
  const auto latency = static_cast<Nanos>(profile.copy_latency_us * kMicrosecond);
  const auto busy =
      profile.copy_gbs > 0 ? static_cast<Nanos>(static_cast<double>(bytes) / profile.copy_gbs) : 0;
  if (latency == 0 && busy == 0) return 0;
  Nanos &engine_free = way == CopyWay::to_host ? to_host_free_ : to_device_free_;
  std::lock_guard lock(mutex);
  engine_free = std::max(engine_free, begun) + busy;
  return engine_free + latency;
}

Status SimChip::begin_piece() {
  if (profile.breaks_at < 0 || pieces_++ < profile.breaks_at) return {};
  return Status::make(DICOMM_DEVICE_FAILED, "the simulated chip ", profile.brand,
                      " broke, as it was told to");
}

std::string SimDevice::describe() const {
  const std::string memory =
      profile_.memory_bytes == 0 ? std::string("no limit") : concat(profile_.memory_bytes >> 20, " MiB");
  return concat(profile_.brand, " ", index(), ": simulated, ", profile_.tflops, " TFLOP/s, memory ", memory);
}

}  // namespace dicomm
