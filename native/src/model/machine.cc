#include "model/machine.h"

#include <limits>

namespace dicomm::model {

Status Machine::check() const {
  const struct {
    const char *name;
    double value;
  } times[] = {{"the latency inside a host", local_latency},
               {"the latency between hosts", remote_latency},
               {"the overhead of a message", overhead}},
    rates[] = {{"the bandwidth inside a host", local_bandwidth},
               {"the bandwidth between hosts", remote_bandwidth},
               {"the bandwidth of a NIC", nic_bandwidth},
               {"the bandwidth of copies", copy_bandwidth},
               {"the bandwidth of reductions", reduce_bandwidth}};
  for (const auto &[name, value] : times) {
    if (value >= 0 && value <= std::numeric_limits<double>::max()) continue;
    return Status::make(DICOMM_INVALID_ARGUMENT, name, " must not be ", value, " seconds");
  }
  for (const auto &[name, value] : rates) {
    if (value > 0) continue;
    return Status::make(DICOMM_INVALID_ARGUMENT, name, " must not be ", value, " bytes per second");
  }
  return {};
}

}  // namespace dicomm::model
