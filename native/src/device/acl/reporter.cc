#include "device/acl/reporter.h"

#include <chrono>

#include "base/thread.h"

namespace dicomm {

namespace {

constexpr int32_t kReportMilliseconds = 100;
// Between calls that return at once although nothing has been reported.
constexpr auto kPause = std::chrono::milliseconds(1);

}  // namespace

AclReporter::~AclReporter() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

Status AclReporter::subscribe(void *stream) {
  std::lock_guard lock(mutex_);
  if (!thread_.joinable()) thread_ = start_thread("dicomm-acl", [this] { run(); });
  const auto id = static_cast<uint64_t>(thread_.native_handle());
  DICOMM_TRY(api_->check(api_->aclrtSubscribeReport(id, stream), "aclrtSubscribeReport"));
  ++streams_;
  changed_.notify_all();
  return {};
}

void AclReporter::unsubscribe(void *stream) {
  std::lock_guard lock(mutex_);
  const auto id = static_cast<uint64_t>(thread_.native_handle());
  (void)api_->check(api_->aclrtUnSubscribeReport(id, stream), "aclrtUnSubscribeReport");
  --streams_;
}

void AclReporter::run() {
  (void)api_->check(api_->aclrtSetCurrentContext(context_), "aclrtSetCurrentContext");
  std::unique_lock lock(mutex_);
  while (!stop_) {
    changed_.wait(lock, [&] { return stop_ || streams_ > 0; });
    if (stop_) return;
    lock.unlock();
    if (api_->aclrtProcessReport(kReportMilliseconds) != kAclSuccess) std::this_thread::sleep_for(kPause);
    lock.lock();
  }
}

}  // namespace dicomm
