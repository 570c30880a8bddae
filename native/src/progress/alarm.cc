#include "progress/alarm.h"

#include <errno.h>
#include <sys/timerfd.h>

namespace dicomm {

Status Alarm::open() {
  timer_.reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
  if (!timer_.valid()) return Status::from_errno(errno, "cannot create a timerfd");
  return {};
}

void Alarm::set(Nanos when) {
  itimerspec at{};
  at.it_value = {static_cast<time_t>(when / kSecond), static_cast<long>(when % kSecond)};
  timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &at, nullptr);
}

void Alarm::wait() {
  uint64_t rung;
  while (::read(timer_.get(), &rung, sizeof rung) < 0 && errno == EINTR) {
  }
}

}  // namespace dicomm
