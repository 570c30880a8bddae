// Monotonic time in nanoseconds, and deadlines made from the ABI's time-outs.
#pragma once

#include <time.h>

#include <cstdint>
#include <limits>

namespace dicomm {

using Nanos = int64_t;
inline constexpr Nanos kNever = std::numeric_limits<Nanos>::max();
inline constexpr Nanos kMicrosecond = 1000;
inline constexpr Nanos kMillisecond = 1000 * kMicrosecond;
inline constexpr Nanos kSecond = 1000 * kMillisecond;

inline Nanos now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<Nanos>(t.tv_sec) * kSecond + t.tv_nsec;
}

// The point in time `timeout` from now; a time-out too long to represent is never.
inline Nanos deadline_after(Nanos timeout) {
  const Nanos start = now();
  return timeout >= kNever - start ? kNever : start + timeout;
}

}  // namespace dicomm
