// The thread on which the run time calls back. It has none of its own: a thread is subscribed to streams and
// asks for what they have to report.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "device/acl/runtime.h"

namespace dicomm {

class AclReporter {
 public:
  AclReporter(std::shared_ptr<const AclRuntime> api, void *context)
      : api_(std::move(api)), context_(context) {}
  ~AclReporter();  // ends the thread
  AclReporter(const AclReporter &) = delete;

  Status subscribe(void *stream);
  void unsubscribe(void *stream);  // whose callbacks have all run

 private:
  void run();

  const std::shared_ptr<const AclRuntime> api_;
  void *const context_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int streams_ = 0;
  bool stop_ = false;
  std::thread thread_;  // started by the first stream
};

}  // namespace dicomm
