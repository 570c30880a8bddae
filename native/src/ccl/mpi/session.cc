#include "ccl/mpi/session.h"

#include <chrono>

#include "ccl/gate.h"

namespace dicomm::mpi {

// A piece of work counts from when it is enqueued until it was done, or was thrown away with its stream.
class Session::Counted {
 public:
  explicit Counted(std::shared_ptr<Session> session) : session_(std::move(session)) {
    const std::lock_guard lock(session_->mutex_);
    ++session_->under_way_;
  }
  ~Counted() {
    const std::lock_guard lock(session_->mutex_);
    --session_->under_way_;
    session_->changed_.notify_all();
  }
  Counted(const Counted &) = delete;
  Session &session() const { return *session_; }

 private:
  const std::shared_ptr<Session> session_;
};

void Session::fail(const Status &why) {
  const std::lock_guard lock(mutex_);
  if (failed_.ok()) failed_ = why;
  changed_.notify_all();
}

Status Session::error() {
  const std::lock_guard lock(mutex_);
  return failed_.ok() ? library->usable() : failed_;
}

void Session::end() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

bool Session::ended() {
  const std::lock_guard lock(mutex_);
  return ended_;
}

bool Session::wait_idle(Nanos deadline) {
  std::unique_lock lock(mutex_);
  while (under_way_ > 0) {
    const Nanos left = deadline == kNever ? kSecond : deadline - now();
    if (left <= 0) return false;
    changed_.wait_for(lock, std::chrono::nanoseconds(left));
  }
  return true;
}

Status Session::perform(Work &work) {
  DICOMM_TRY(error());
  if (ended()) return Gate::refusal();
  if (work.before) work.before();
  std::vector<Handle> requests;
  Status status;
  for (const auto &call : work.calls) {
    Handle request = 0;
    status = library->failure(call(&request), work.function);
    if (!status.ok()) break;
    requests.push_back(request);
  }
  // Those that were begun are waited for also when a later one could not be.
  const Status waited = wait_all(*library, requests, kNever, [this] { return ended(); });
  if (!requests.empty()) {
    library->left = true;
    static_cast<void>(work.aside.release());
  }
  if (status.ok()) status = waited;
  if (status.ok() && work.after) work.after();
  return status;
}

Status Session::enqueue(const std::shared_ptr<Session> &session, std::shared_ptr<Work> work,
                        WorkQueue &queue) {
  return queue.enqueue(
      [counted = std::make_shared<Counted>(session), work = std::move(work)](Nanos, Nanos &) -> Status {
        const Status status = counted->session().perform(*work);
        if (!status.ok()) counted->session().fail(status);
        return {};  // the group has failed, not the chip
      });
}

}  // namespace dicomm::mpi
