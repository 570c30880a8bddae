#include "completions.h"

#include <pthread.h>

#include <system_error>
#include <thread>

namespace dicomm::torch_plugin {

namespace {
constexpr std::chrono::milliseconds kStall{2};  // a task running for longer may be waiting for another one
constexpr std::chrono::seconds kIdle{5};
}  // namespace

void Completions::submit(Task task) {
  std::lock_guard lock(mutex_);
  queue_.push_back(std::move(task));
  if (forked_) return;
  if (threads_ == running_) spawn();
  changed_.notify_one();
}

void Completions::spawn() {
  try {
    std::thread([self = shared_from_this()] { self->run(); }).detach();
    ++threads_;
  } catch (const std::system_error &) {
    // No thread to be had: those that exist get to the queue when they are done.
  }
}

void Completions::run() {
  pthread_setname_np(pthread_self(), "dicomm-futures");
  std::unique_lock lock(mutex_);
  while (true) {
    if (queue_.empty()) {
      if (changed_.wait_for(lock, kIdle) == std::cv_status::timeout && queue_.empty()) break;
      continue;
    }
    const auto stalled_at = last_start_ + kStall;
    if (running_ > 0 && Clock::now() < stalled_at) {
      changed_.wait_until(lock, stalled_at);
      continue;
    }
    Task task = std::move(queue_.front());
    queue_.pop_front();
    last_start_ = Clock::now();
    ++running_;
    if (threads_ == running_ && !queue_.empty()) spawn();
    lock.unlock();
    task();
    task = nullptr;  // what it holds may be released slowly
    lock.lock();
    --running_;
    changed_.notify_all();
  }
  --threads_;
}

void Completions::drain(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  if (forked_) return;
  changed_.wait_for(lock, limit, [&] { return queue_.empty() && running_ == 0; });
}

}  // namespace dicomm::torch_plugin
