// Engine: who makes progress, and how threads wait.
//
// One mutex per Context, the engine lock, guards everything from here down to the transports. A waiting
// caller drives: it polls briefly (spin), then sleeps inside the reactor, so that a message is handled by the
// thread that waits for it. One thread at a time sleeps in the reactor (the driver); other waiters sleep on a
// futex word of their own until their request is done or the driver leaves and asks one of them to take over.
//
// The background thread drives only when no caller does. It keeps out of the way of callers, for a core that
// it takes, or a wake-up that each of them has to send it, shows in their latency: while they come and go, or
// poll, they put off the alarm that would wake it. While a driver sleeps it sleeps too, until the last caller
// leaves. When nobody waits it sleeps in the reactor and costs nothing.
#pragma once

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "progress/alarm.h"
#include "progress/reactor.h"
#include "progress/request.h"

namespace dicomm {

enum class WaitEnd { done, timed_out, interrupted };

class Engine {
 public:
  using Lock = std::unique_lock<std::mutex>;

  explicit Engine(Nanos spin) : spin_(spin) {}
  Status start();
  void stop();  // joins the thread; no caller may be inside wait

  Lock lock() { return Lock(mutex_); }
  Reactor &reactor() { return reactor_; }  // lock held

  // ---- lock held ----
  // Puts a started request under the engine's care: reference, deadline, list of active requests.
  void track(Request &request);
  // Completes it: waiters wake, the callback runs, the engine's reference goes. Exactly once per request.
  void complete(Request &request, Status status);
  // The active requests of a communicator, newest first, each retained for the caller.
  std::vector<Request *> active(const void *group) const;
  size_t active_count(const void *group) const;
  // Ends every call that may have posted tasks, set timers or tracked requests: runs the tasks, and wakes the
  // sleeping driver for what is due earlier than it knows.
  void settle();
  // Drives from this thread until `done()` or the deadline. The lock is released while it sleeps.
  template <class Done>
  bool drive(Lock &lock, Nanos until, Done done) {
    enter(now());
    bool reached = done();
    while (!reached && now() < until) {
      step(lock, until);
      reached = done();
    }
    leave();
    return reached;
  }

  // ---- lock not held ----
  // Until one of the requests is done; until 0: one poll.
  WaitEnd wait(Request *const *requests, size_t count, Nanos until);
  Nanos spin() const { return spin_; }
  // More ranks than cores: whoever polls yields its core, for the one it waits for may need it.
  void set_crowded(bool crowded) { crowded_ = crowded; }
  // In a forked child, where the thread does not exist and the lock may be held for ever.
  void after_fork();
  bool forked() const { return forked_; }

 private:
  // The background thread takes over kRest after a visit, of which kNews may have passed since the last one.
  // Where callers get a core only now and then, and so are late with putting off the alarm, it learns to wait
  // longer.
  static constexpr Nanos kRest = kMillisecond, kLongRest = 8 * kRest, kNews = kRest / 2;
  static constexpr Nanos kLongSleep = 2 * kMillisecond;
  // Polls between looks at the clock.
  static constexpr unsigned kLookUp = 32;
  static constexpr unsigned kLookUpCrowded = 4;
  // Who yields is slow to answer, so a rank that has its core to itself does so only after a while.
  static constexpr Nanos kKeepCore = 100 * kMicrosecond;

  void enter(Nanos time) {
    callers_.fetch_add(1);
    visit(time);
  }
  void visit(Nanos time) {
    if (time - visited_.load(std::memory_order_relaxed) < kNews) return;
    visited_.store(time, std::memory_order_relaxed);
    alarm_.set(time + rest_.load(std::memory_order_relaxed));
  }
  void leave();
  void run();                                       // the background thread
  void poll(Nanos time);                            // fetch without blocking, dispatch, expire
  bool sleep(Lock &lock, Waiter &me, Nanos until);  // true: interrupted by a signal
  void step(Lock &lock, Nanos until);  // one poll or one sleep, whichever the driver token allows
  void become_driver(Waiter &me, Nanos until);
  void expire();
  Nanos next_event() const;
  void wake(Waiter &waiter);
  void hand_over();

  std::mutex mutex_;
  Reactor reactor_;
  const Nanos spin_;
  std::atomic<bool> crowded_{false};
  Request *active_ = nullptr;
  Nanos next_deadline_ = kNever;  // never later than the earliest deadline of an active request

  Waiter *driver_ = nullptr;
  bool driver_watches_ = false;  // for anything that may change, and not for requests of its own
  Nanos driver_since_ = 0;
  Nanos driver_until_ = 0;
  std::vector<Waiter *> sleepers_;  // on their futex words

  std::atomic<int> callers_{0};    // threads inside wait
  std::atomic<Nanos> visited_{0};  // when one of them last put off the alarm
  std::atomic<Nanos> rest_{kRest};
  Nanos looked_ = 0;  // when a caller last asked the kernel for news
  Alarm alarm_;
  std::atomic<bool> deep_rest_{false};
  Waiter background_;
  bool stop_ = false;
  bool forked_ = false;
  std::thread thread_;
};

}  // namespace dicomm
