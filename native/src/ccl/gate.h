// Who is inside a group's vendor calls, and whether the group has ended: abort may come from any thread, and
// the vendor's handle is gone behind it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "base/clock.h"
#include "base/error.h"

namespace dicomm {

class Gate {
 public:
  // Held for the length of one call. ok() is ABORTED when the group has ended: nothing may be called then.
  class Pass {
   public:
    explicit Pass(Gate &gate) : gate_(gate), admitted_(gate.enter()) {}
    ~Pass() {
      if (admitted_) gate_.leave();
    }
    Pass(const Pass &) = delete;
    Pass &operator=(const Pass &) = delete;
    Status status() const { return admitted_ ? Status() : gate_.refusal(); }

   private:
    Gate &gate_;
    const bool admitted_;
  };

  bool ended() const { return ended_.load(std::memory_order_acquire); }
  static Status refusal() {
    return Status::make(DICOMM_ABORTED, "the group of the vendor's library was aborted or closed");
  }

  // True for the first call only. Nobody is admitted afterwards.
  bool end() {
    const std::lock_guard lock(mutex_);
    return !ended_.exchange(true);
  }
  // Is everybody outside by then?
  bool wait_empty(Nanos deadline) {
    std::unique_lock lock(mutex_);
    while (inside_ > 0) {
      const Nanos left = deadline - now();
      if (left <= 0) return false;
      left_.wait_for(lock, std::chrono::nanoseconds(left));
    }
    return true;
  }

 private:
  bool enter() {
    const std::lock_guard lock(mutex_);
    if (ended_) return false;
    ++inside_;
    return true;
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    if (--inside_ == 0) left_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable left_;
  int inside_ = 0;
  std::atomic<bool> ended_{false};
};

}  // namespace dicomm
