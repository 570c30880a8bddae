// Threads on which futures complete.
//
// A future's callbacks are user code: they may start a collective and wait for it. One thread runs them in
// order; when it has not come back for a while and more are queued, another takes over, so a callback that
// waits never keeps the one it waits for from completing. Threads end when nothing happens.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

namespace dicomm::torch_plugin {

class Completions : public std::enable_shared_from_this<Completions> {
 public:
  using Task = std::function<void()>;

  // Never blocks and never throws but std::bad_alloc; tasks must not throw.
  void submit(Task task);
  // Waits until every submitted task has run, or until `limit` has passed.
  void drain(std::chrono::milliseconds limit);
  // In a forked child, which has none of the threads: tasks are kept and never run.
  void after_fork() { forked_ = true; }
  bool forked() const { return forked_; }

 private:
  using Clock = std::chrono::steady_clock;

  void spawn();  // with mutex_ held
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> queue_;
  Clock::time_point last_start_{};
  int threads_ = 0;
  int running_ = 0;
  bool forked_ = false;
};

}  // namespace dicomm::torch_plugin
