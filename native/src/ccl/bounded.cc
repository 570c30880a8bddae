#include "ccl/bounded.h"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "base/thread.h"

namespace dicomm {

namespace {

struct Shared {
  std::mutex mutex;
  std::condition_variable changed;
  bool returned = false;   // from the vendor's code; from here on the caller waits
  bool finished = false;   // and the thread has put the vendor's current device back
  bool abandoned = false;  // the caller has left
  Status status;
};

[[noreturn]] void sleep_until_the_process_ends() {
  for (;;) ::pause();
}

}  // namespace

bool run_bounded(Device &device, Nanos deadline, std::function<Status()> call, std::function<void()> late,
                 Status &status) {
  auto shared = std::make_shared<Shared>();
  start_thread("dicomm-ccl", [shared, &device, call = std::move(call), late = std::move(late)] {
    Status outcome = device.with_current([&] {
      Status returned = call();
      {
        const std::lock_guard lock(shared->mutex);
        shared->returned = true;
        if (!shared->abandoned) return returned;
      }
      late();
      sleep_until_the_process_ends();
    });
    const std::lock_guard lock(shared->mutex);
    shared->status = std::move(outcome);
    shared->finished = true;
    shared->changed.notify_all();
  }).detach();

  std::unique_lock lock(shared->mutex);
  while (!shared->finished) {
    const Nanos left = deadline == kNever ? kSecond : deadline - now();
    if (left <= 0 && !shared->returned) {
      shared->abandoned = true;
      return false;
    }
    shared->changed.wait_for(lock, std::chrono::nanoseconds(left > 0 ? left : kMillisecond));
  }
  status = shared->status;
  return true;
}

}  // namespace dicomm
