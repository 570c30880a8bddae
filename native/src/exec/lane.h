// ChipLane: what a rank does on its chip in one order, for one communicator: arithmetic and the calls of its
// island's library, which all members must make in the same order, on one stream.
//
// Vendors' calls may block for as long as their peers take, so a thread of the lane makes them.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "ccl/ccl.h"
#include "exec/chip.h"

namespace dicomm {

class ChipLane {
 public:
  // group: null where the rank is alone in its island. members: the communicator's ranks of the group, in its
  // order.
  ChipLane(Chip &chip, std::unique_ptr<CclGroup> group, std::vector<int> members);
  ~ChipLane();
  ChipLane(const ChipLane &) = delete;
  Status open();
  // Ends the thread and the group: collectively with its peers when all went well (`clean`), else at once.
  void close(bool clean, Nanos timeout);

  // Engine lock held:
  // Tasks start in the order in which they are appended, each when it is ready as well.
  void append(ChipTask &task);
  void set_ready(ChipTask &task);
  // Takes back the owner's tasks that have not started. Returns how many.
  size_t take_back(const ChipTaskOwner &owner);
  // Frees whoever waits inside the library, from a thread of its own; later tasks fail. Only the first call
  // does anything.
  void abort();
  // What the library noticed by itself.
  Status async_error() { return group_ ? group_->async_error() : Status(); }
  bool has_library() const { return group_ != nullptr; }
  Stream &stream() { return *stream_; }
  // What the library was asked to do so far, and the bytes of this rank's larger buffer in each call. Any
  // thread.
  struct Calls {
    uint64_t count = 0, bytes = 0;
  };
  Calls calls();
  // Where in the group a rank of the communicator is.
  int place_of(int rank) const;

 private:
  static constexpr Nanos kAbort = 2 * kSecond;
  void run();

  Chip &chip_;
  const std::unique_ptr<CclGroup> group_;
  const std::vector<int> members_;
  std::unique_ptr<Stream> stream_;
  std::mutex mutex_;  // after the engine lock
  std::condition_variable changed_;
  std::deque<ChipTask *> tasks_;
  Calls calls_;
  bool stop_ = false;
  std::thread thread_, aborter_;
};

}  // namespace dicomm
