// Alarm: one thread waits until it rings; any other may put it off, without waking the one that waits.
#pragma once

#include "base/clock.h"
#include "base/error.h"
#include "base/unique_fd.h"

namespace dicomm {

class Alarm {
 public:
  Status open();
  // Rings at `when` and at no time set before. Any thread.
  void set(Nanos when);
  // Until it rings, or has rung since it was last set.
  void wait();
  // In a forked child, which shares the parent's clock: gives it up.
  void after_fork() { timer_.reset(); }

 private:
  UniqueFd timer_;
};

}  // namespace dicomm
