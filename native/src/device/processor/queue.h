// What a vendor's stream is, for chips that are this host's processors: work done in order by one thread.
//
// The queue keeps a clock of its own. Work that is to take a modelled time is done at once and then waited
// for; what follows counts as begun when the model says it could, not when this thread woke up, so that late
// wake-ups do not add up along a pipeline.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/error.h"

namespace dicomm {

// The failure a chip does not recover from; shared by its queues.
class ChipHealth {
 public:
  Status status() const;
  void fail(const Status &why);  // the first wins

 private:
  mutable std::mutex mutex_;
  Status failed_;
};

class WorkQueue {
 public:
  // begun: when the work counts as begun. until: set to when it ends in the model; left alone: as long as it
  // takes.
  using Work = std::function<Status(Nanos begun, Nanos &until)>;

  explicit WorkQueue(std::shared_ptr<ChipHealth> health) : health_(std::move(health)) {}
  ~WorkQueue();  // waits for all work, unless abandoned
  WorkQueue(const WorkQueue &) = delete;

  // Not run when the chip has failed by then; what it returns but OK is the chip's failure. Does not block.
  Status enqueue(Work work);
  // Runs behind all work so far, done or failed, with the chip's failure. Does not block.
  void mark(std::function<void(const Status &)> fn);
  bool idle() const;           // nothing enqueued that is not done
  bool drain(Nanos deadline);  // true: all is done, or the queue was abandoned
  // Gives up waiting: the thread is left behind with what it does.
  void abandon();

 private:
  struct Item {
    Work work;  // or
    std::function<void(const Status &)> fn;
    Nanos enqueued = 0;
  };
  // Outlives the queue where the thread does.
  struct Shared {
    mutable std::mutex mutex;
    std::condition_variable changed;
    std::deque<Item> items;
    bool busy = false;
    bool stop = false;
  };

  static void run(Shared &shared, ChipHealth &health);
  void push(Item item);

  std::shared_ptr<ChipHealth> health_;
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::thread thread_;  // started by the first work
};

}  // namespace dicomm
