// Request: one started operation. Completes exactly once.
//
// Reference-counted: the caller's handle holds one reference, the engine another until completion. done()
// and, once done, status() may be read by any thread without the lock; everything else needs the engine lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/error.h"

namespace dicomm {

class Engine;

// A thread that sleeps until one of its requests completes or until it is asked to drive.
struct Waiter {
  std::atomic<uint32_t> signal{0};  // futex word: 1 = look again
  bool in_reactor = false;          // sleeps in Reactor::fetch rather than on the word
};

class Request {
 public:
  Request(dicomm_opcode opcode, uint64_t bytes) : opcode(opcode), bytes(bytes) {}
  Request(const Request &) = delete;
  Request &operator=(const Request &) = delete;

  bool done() const { return done_.load(std::memory_order_acquire); }
  const Status &status() const { return status_; }

  void retain() { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) dispose();
  }

  // Ends the request early: takes back what the layers below hold of it, then completes it with `why`,
  // to which it adds what it knows (op, rank, peer, bytes, time waited).
  virtual void fail(const Status &why) = 0;
  // The operation cannot end well any more: a collective takes its communicator with it.
  virtual void give_up(const Status &why) { fail(why); }
  // Names what the request waits for, for the time-out message: "waiting for rank 3 (host b)".
  virtual std::string waiting_for() const = 0;
  // Can it not complete without more from this rank? The rank left after sending what it had to (gone: its
  // process is no more, so that nothing more can come even of what has begun).
  virtual bool needs(int rank, bool gone) const = 0;
  // True when the request could still be taken back and was (it is then complete with CANCELED).
  virtual bool cancel() { return false; }

  dicomm_opcode opcode;
  uint64_t bytes;               // a completed receive: received
  int source = -1;              // a completed receive: the sender
  int64_t seq = -1;             // collectives
  const void *group = nullptr;  // the communicator, for Engine::active
  Nanos started = 0;
  Nanos deadline = kNever;

  // The engine's own.
  Engine *engine = nullptr;  // null: not started
  Request *prev = nullptr;
  Request *next = nullptr;
  std::vector<Waiter *> waiters;
  void (*notify)(void *, int32_t) = nullptr;
  void *notify_arg = nullptr;

 protected:
  virtual ~Request() = default;
  // Nobody holds it any more. Kinds that are started often keep their objects (Spares) and renew() them.
  virtual void dispose() { delete this; }
  void renew(dicomm_opcode code, uint64_t size) {
    opcode = code;
    bytes = size;
    source = -1;
    seq = -1;
    notify = nullptr;
    notify_arg = nullptr;
    status_ = {};
    references_.store(1, std::memory_order_relaxed);
    done_.store(false, std::memory_order_relaxed);
  }

 private:
  friend class Engine;
  std::atomic<bool> done_{false};
  std::atomic<int> references_{1};
  Status status_;
};

}  // namespace dicomm
