#include "progress/engine.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>

#include <algorithm>
#include <new>

#include "base/thread.h"

namespace dicomm {

namespace {

// Until the word is not 0, a signal or the deadline. True: a signal.
bool futex_sleep(std::atomic<uint32_t> &word, Nanos until) {
  timespec at{static_cast<time_t>(until / kSecond), static_cast<long>(until % kSecond)};
  // FUTEX_WAIT_BITSET takes an absolute time on CLOCK_MONOTONIC.
  const long rc = syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 0, until == kNever ? nullptr : &at,
                          nullptr, FUTEX_BITSET_MATCH_ANY);
  return rc != 0 && errno == EINTR;
}

bool any_done(Request *const *requests, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (requests[i]->done()) return true;
  }
  return false;
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

Status Engine::start() {
  DICOMM_TRY(reactor_.open());
  DICOMM_TRY(alarm_.open());
  thread_ = start_thread("dicomm-progress", [this] { run(); });
  return {};
}

void Engine::stop() {
  {
    Lock lock(mutex_);
    stop_ = true;
    alarm_.set(1);
    deep_rest_.store(false);
    deep_rest_.notify_all();
    reactor_.kick();
  }
  if (thread_.joinable()) thread_.join();
}

void Engine::after_fork() {
  forked_ = true;
  reactor_.after_fork();
  alarm_.after_fork();
  // The thread object names a thread of the parent; neither join nor its destructor may touch it.
  new (&thread_) std::thread();
}

void Engine::track(Request &request) {
  request.engine = this;
  request.retain();
  request.started = now();
  request.next = active_;
  if (active_ != nullptr) active_->prev = &request;
  active_ = &request;
  next_deadline_ = std::min(next_deadline_, request.deadline);
}

void Engine::complete(Request &request, Status status) {
  if (request.prev != nullptr) request.prev->next = request.next;
  if (request.next != nullptr) request.next->prev = request.prev;
  if (active_ == &request) active_ = request.next;
  request.prev = request.next = nullptr;
  const dicomm_status code = status.code();
  request.status_ = std::move(status);
  request.done_.store(true, std::memory_order_release);
  for (Waiter *waiter : request.waiters) wake(*waiter);
  if (request.notify != nullptr) request.notify(request.notify_arg, code);
  request.release();
}

std::vector<Request *> Engine::active(const void *group) const {
  std::vector<Request *> found;
  for (Request *r = active_; r != nullptr; r = r->next) {
    if (r->group == group) {
      r->retain();
      found.push_back(r);
    }
  }
  return found;
}

size_t Engine::active_count(const void *group) const {
  size_t count = 0;
  for (const Request *r = active_; r != nullptr; r = r->next) count += r->group == group;
  return count;
}

void Engine::settle() {
  if (reactor_.has_posted()) {
    Reactor::Batch none;
    reactor_.dispatch(none);
  }
  if (driver_ == nullptr) return;
  // A driver that fell asleep before the call knows neither of the deadlines and timers the call has set nor
  // of the bells and connections it has taken up.
  if (reactor_.arm() || next_event() < driver_until_) reactor_.kick();
}

void Engine::wake(Waiter &waiter) {
  waiter.signal.store(1, std::memory_order_release);
  if (waiter.in_reactor) {
    reactor_.kick();
  } else {
    syscall(SYS_futex, &waiter.signal, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }
}

Nanos Engine::next_event() const {
  return reactor_.has_posted() ? 0 : std::min(next_deadline_, reactor_.next_timer());
}

void Engine::expire() {
  if (next_deadline_ == kNever) return;
  const Nanos time = now();
  if (time < next_deadline_) return;
  std::vector<Request *> due;
  next_deadline_ = kNever;
  for (Request *r = active_; r != nullptr; r = r->next) {
    if (r->deadline <= time) {
      r->retain();
      due.push_back(r);
    } else {
      next_deadline_ = std::min(next_deadline_, r->deadline);
    }
  }
  for (Request *r : due) {
    if (!r->done()) r->give_up(Status::make(DICOMM_TIMED_OUT, "timed out ", r->waiting_for()));
    r->release();
  }
}

void Engine::poll(Nanos time) {
  Reactor::Batch batch;
  // Who comes only now and then asks the kernel each time, for it puts off the thread that would.
  reactor_.peek(batch, time - looked_ >= kNews);
  if (!batch.brief) looked_ = time;
  const bool news = reactor_.dispatch(batch);
  if (!batch.brief) expire();
  settle();
  if (news && driver_watches_) reactor_.kick();
}

void Engine::become_driver(Waiter &me, Nanos until) {
  driver_ = &me;
  me.in_reactor = true;
  driver_since_ = now();
  driver_until_ = std::min(until, next_event());
}

bool Engine::sleep(Lock &lock, Waiter &me, Nanos until) {
  Reactor::Batch batch;
  become_driver(me, until);
  const Nanos wake_at = reactor_.arm() ? 0 : driver_until_;
  lock.unlock();
  reactor_.fetch(batch, wake_at);
  lock.lock();
  reactor_.disarm();
  driver_ = nullptr;
  me.in_reactor = false;
  reactor_.dispatch(batch);
  expire();
  return batch.interrupted;
}

void Engine::hand_over() {
  if (driver_ == nullptr && !sleepers_.empty()) wake(*sleepers_.front());
}

void Engine::step(Lock &lock, Nanos until) {
  Waiter me;
  if (driver_ == nullptr) {
    driver_watches_ = true;
    sleep(lock, me, until);
    driver_watches_ = false;
    hand_over();
    return;
  }
  if (driver_ == &background_) reactor_.kick();
  poll(now());
  lock.unlock();
  std::this_thread::sleep_for(std::chrono::microseconds(100));
  lock.lock();
}

WaitEnd Engine::wait(Request *const *requests, size_t count, Nanos until) {
  if (any_done(requests, count)) return WaitEnd::done;
  const Nanos start = now();
  enter(start);
  Lock lock(mutex_, std::defer_lock);
  const bool crowded = crowded_.load(std::memory_order_relaxed);
  const unsigned look_up = crowded ? kLookUpCrowded : kLookUp;
  const Nanos spin_end = std::min(until, start + spin_);
  WaitEnd end = WaitEnd::done;
  bool done = false;
  Nanos time = start;
  for (unsigned looks = 1;; ++looks) {
    const bool look_up_now = looks % look_up == 0;
    bool yields = crowded;
    if (lock.try_lock()) {
      poll(time);
      if (look_up_now && !crowded) yields = reactor_.core_is_shared();
      lock.unlock();
    } else {
      relax();
    }
    done = any_done(requests, count);
    if (done || until == 0) break;
    if (!look_up_now) continue;
    time = now();
    visit(time);
    if (time >= spin_end) break;
    if (yields || time - start > kKeepCore) sched_yield();
  }

  if (!done && until == 0) {
    end = WaitEnd::timed_out;
  } else if (!done) {
    lock.lock();
    Waiter me;
    for (size_t i = 0; i < count; ++i) requests[i]->waiters.push_back(&me);
    while (!any_done(requests, count)) {
      if (now() >= until) {
        end = WaitEnd::timed_out;
        break;
      }
      bool interrupted = false;
      if (driver_ == nullptr) {
        interrupted = sleep(lock, me, until);
      } else {
        if (driver_ == &background_) reactor_.kick();  // it leaves to the first sleeper
        sleepers_.push_back(&me);
        lock.unlock();
        interrupted = futex_sleep(me.signal, until);
        lock.lock();
        std::erase(sleepers_, &me);
      }
      me.signal.store(0, std::memory_order_relaxed);
      if (interrupted && !any_done(requests, count)) {
        end = WaitEnd::interrupted;
        break;
      }
    }
    for (size_t i = 0; i < count; ++i) std::erase(requests[i]->waiters, &me);
    hand_over();
    lock.unlock();
  }
  leave();
  return end;
}

void Engine::leave() {
  // The last one to go calls back the background thread that sleeps while a driver does.
  if (callers_.fetch_sub(1) == 1 && deep_rest_.load() && deep_rest_.exchange(false)) deep_rest_.notify_one();
}

void Engine::run() {
  Lock lock(mutex_);
  bool rang = false;
  while (!stop_) {
    const Nanos time = now();
    if (driver_ != nullptr && time - driver_since_ > kLongSleep) {
      deep_rest_.store(true);
      if (callers_.load() > 0) {
        lock.unlock();
        deep_rest_.wait(true);
        lock.lock();
      }
      deep_rest_.store(false);
      visited_.store(now());  // who has left just now may come again
      rest_.store(kRest);
      rang = false;
    } else if (callers_.load() > 0 || time - visited_.load() < rest_.load()) {
      // It rang for nothing: who polls is late.
      if (rang && driver_ == nullptr) rest_.store(std::min(2 * rest_.load(), kLongRest));
      alarm_.set(time + rest_.load());
      lock.unlock();
      alarm_.wait();
      lock.lock();
      rang = true;
    } else {
      rest_.store(kRest);
      rang = false;
      sleep(lock, background_, kNever);
      hand_over();
    }
  }
}

}  // namespace dicomm
