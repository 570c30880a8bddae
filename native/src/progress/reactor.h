// Reactor: the one place where file descriptors, timers and posted tasks meet the engine.
//
// Every function but kick() is called with the engine lock held; every callback runs with it held, from
// inside Reactor::dispatch, never from inside the call that caused it. Callbacks must not block.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/unique_fd.h"

namespace dicomm {

class FdHandler {
 public:
  virtual void on_ready(uint32_t events) = 0;  // EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP

 protected:
  ~FdHandler() = default;
};

// A source of progress that has no file descriptor while somebody polls: shared memory.
class Poller {
 public:
  // Looks for work and does it. True if there was some.
  virtual bool poll() = 0;
  // The process is about to sleep: from here until disarm() the other side must wake it through a descriptor.
  // True: there is work already, do not sleep.
  virtual bool arm() = 0;
  virtual void disarm() = 0;
  // This thread polls on `core`. True: so did the other side when it polled last.
  virtual bool meets_on(int core) = 0;

 protected:
  ~Poller() = default;
};

class Reactor {
 public:
  using Timer = std::pair<Nanos, uint64_t>;

  Status open();

  // Level-triggered. The handler must stay alive until remove(); after remove() it is never called again,
  // also not for events already fetched.
  Status add(int fd, uint32_t events, FdHandler *handler);
  void modify(int fd, uint32_t events);
  void remove(int fd);

  // Polled by every dispatch until removed; may be removed from inside its own poll.
  void add(Poller *poller) { pollers_.push_back(poller); }
  void remove(Poller *poller);
  // Around a fetch that may block. arm() true: there is work.
  bool arm();
  void disarm();
  // Does the other side of a poller run on this thread's core, so that only yielding lets it answer?
  bool core_is_shared();

  // Runs the task at the end of the current or the next dispatch.
  void post(std::function<void()> task);

  Timer at(Nanos when, std::function<void()> task);
  void cancel(const Timer &timer);
  Nanos next_timer() const { return timers_.empty() ? kNever : timers_.begin()->first.first; }
  bool has_posted() const { return !posted_.empty(); }

  // Fetches events; may block until `until` (0: does not) and is called WITHOUT the lock when it may.
  // At most one thread at a time may block here. `interrupted`: a signal came.
  struct Batch {
    std::array<epoll_event, 64> events;
    int count = 0;
    bool interrupted = false;
    bool blocking = false;  // only who may have slept consumes kicks: they are for the sleeper
    bool brief = false;     // only pollers were looked at, neither the kernel nor the clock
  };
  void fetch(Batch &batch, Nanos until);
  // Never blocks. While there are pollers, most calls that are not to be `whole` are brief: polling them is
  // what is fast.
  void peek(Batch &batch, bool whole);
  // Runs handlers, due timers and posted tasks until no posted task is left. Lock held. True if anything ran.
  bool dispatch(Batch &batch);
  // Makes a blocking fetch return. Any thread, with or without the lock.
  void kick();
  // In a forked child: closes the descriptors without a word to the kernel's shared epoll set.
  void after_fork();

 private:
  // Events carry (generation, fd): an event fetched before its descriptor was removed, or whose number was
  // reused since, names a generation that is gone.
  struct Slot {
    uint32_t generation = 0;
    FdHandler *handler = nullptr;
  };
  static uint64_t token(int fd, uint32_t generation) {
    return uint64_t{generation} << 32 | static_cast<uint32_t>(fd);
  }

  UniqueFd epoll_;
  UniqueFd wakeup_;
  std::vector<std::function<void()>> posted_;
  std::map<Timer, std::function<void()>> timers_;
  uint64_t timer_ids_ = 0;
  std::vector<Slot> slots_;  // by file descriptor
  static constexpr unsigned kOften = 16, kSeldom = 128;
  std::vector<Poller *> pollers_;
  unsigned peek_every_ = kOften;  // up to kSeldom while the kernel has no news
  unsigned peeks_ = 0;            // since we last asked it
};

}  // namespace dicomm
