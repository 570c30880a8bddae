// A vendor's call that may never come back, with a time limit.
#pragma once

#include <functional>

#include "base/clock.h"
#include "device/device.h"

namespace dicomm {

// Of a time-out of the contract, which may be DICOMM_TIMEOUT_NEVER.
inline Nanos ccl_deadline(int64_t timeout_ns) {
  return timeout_ns == DICOMM_TIMEOUT_NEVER ? kNever : deadline_after(timeout_ns);
}

// Runs call() on a thread of its own, with `device` current there, until `deadline`. True: it has returned,
// and `status` is what it returned. False: it is still inside the vendor's code, and the thread stays behind.
// When the vendor comes back after all, that thread calls late() and then sleeps until the process ends, so
// that it touches neither the Device nor the caller, which may be gone. call and late own what they use.
bool run_bounded(Device &device, Nanos deadline, std::function<Status()> call, std::function<void()> late,
                 Status &status);

}  // namespace dicomm
