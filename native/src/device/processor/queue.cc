#include "device/processor/queue.h"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>

#include "base/thread.h"

namespace dicomm {

namespace {

// Sleeping threads are woken within this of their time; the system's default is 50 times as much.
constexpr unsigned long kTimerSlackNanos = 1000;

void sleep_until(Nanos time) {
  const timespec until{static_cast<time_t>(time / kSecond), static_cast<long>(time % kSecond)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0) {
  }
}

}  // namespace

Status ChipHealth::status() const {
  std::lock_guard lock(mutex_);
  return failed_;
}

void ChipHealth::fail(const Status &why) {
  std::lock_guard lock(mutex_);
  if (failed_.ok()) failed_ = why;
}

WorkQueue::~WorkQueue() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(shared_->mutex);
    shared_->stop = true;
    shared_->changed.notify_all();
  }
  thread_.join();
}

Status WorkQueue::enqueue(Work work) {
  DICOMM_TRY(health_->status());
  push({std::move(work), nullptr, now()});
  return {};
}

void WorkQueue::mark(std::function<void(const Status &)> fn) { push({nullptr, std::move(fn), 0}); }

void WorkQueue::push(Item item) {
  std::lock_guard lock(shared_->mutex);
  shared_->items.push_back(std::move(item));
  shared_->changed.notify_all();
  if (!thread_.joinable())
    thread_ = start_thread("dicomm-stream",
                           [shared = shared_, health = health_] { WorkQueue::run(*shared, *health); });
}

bool WorkQueue::idle() const {
  std::lock_guard lock(shared_->mutex);
  return shared_->items.empty() && !shared_->busy;
}

bool WorkQueue::drain(Nanos deadline) {
  std::unique_lock lock(shared_->mutex);
  const auto done = [&] { return shared_->stop || (shared_->items.empty() && !shared_->busy); };
  if (deadline == kNever) {
    shared_->changed.wait(lock, done);
    return true;
  }
  return shared_->changed.wait_for(lock, std::chrono::nanoseconds(std::max<Nanos>(deadline - now(), 0)),
                                   done);
}

void WorkQueue::abandon() {
  std::lock_guard lock(shared_->mutex);
  shared_->stop = true;
  shared_->changed.notify_all();
  if (thread_.joinable()) thread_.detach();
}

void WorkQueue::run(Shared &shared, ChipHealth &health) {
  prctl(PR_SET_TIMERSLACK, kTimerSlackNanos);
  Nanos ended = 0;
  std::unique_lock lock(shared.mutex);
  for (;;) {
    shared.changed.wait(lock, [&] { return shared.stop || !shared.items.empty(); });
    if (shared.items.empty()) return;
    Item item = std::move(shared.items.front());
    shared.items.pop_front();
    shared.busy = true;
    lock.unlock();
    const Status health_before = health.status();
    if (item.fn) {
      item.fn(health_before);
    } else if (health_before.ok()) {
      Nanos until = 0;
      const Status status = item.work(std::max(item.enqueued, ended), until);
      if (!status.ok()) health.fail(status);
      const Nanos done = now();
      if (until > done) sleep_until(until);
      ended = std::max(until, done);
    }
    item = {};  // what the work held goes before the queue says that it is idle
    lock.lock();
    shared.busy = false;
    shared.changed.notify_all();
  }
}

}  // namespace dicomm
