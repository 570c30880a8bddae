// A group's communicator, and the work on it that streams have been given.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "ccl/mpi/library.h"
#include "device/processor/queue.h"

namespace dicomm::mpi {

// Calls that are begun together, and the memory they need beside the caller's. MPI wants input and output
// apart, or in place on all ranks alike, which this rank cannot know: an input in the output's place is
// copied.
struct Work {
  const char *function;  // of MPI's, for messages
  std::vector<std::function<int(Handle *request)>> calls;
  std::function<void()> before, after;
  std::unique_ptr<std::byte[]> aside;
};

// What a group shares with its work on streams, which may outlive it.
class Session {
 public:
  Session(std::shared_ptr<Library> mpi, Handle communicator) : library(std::move(mpi)), comm(communicator) {}

  Status error();
  void fail(const Status &why);  // the first wins
  void end();                    // work that waits inside MPI gives up
  // Enqueues work. A failure of it shows in error() before what follows on the queue runs.
  static Status enqueue(const std::shared_ptr<Session> &session, std::shared_ptr<Work> work,
                        WorkQueue &queue);
  bool wait_idle(Nanos deadline);  // true: no work is enqueued any more

  const std::shared_ptr<Library> library;
  const Handle comm;

 private:
  class Counted;

  bool ended();
  Status perform(Work &work);

  std::mutex mutex_;
  std::condition_variable changed_;
  Status failed_;
  bool ended_ = false;
  int under_way_ = 0;
};

}  // namespace dicomm::mpi
