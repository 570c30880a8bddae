// Contract between a stream endpoint and one connection of it: cuts what moves to and from a peer into
// messages.
//
// Sends leave at once while there is room; else they wait in two queues, of which control goes first, so that
// a small message does not stand behind large ones. Within a queue the order is that of the sends.
#pragma once

#include "base/unique_fd.h"
#include "transport/transport.h"

namespace dicomm {

class Connection : public FdHandler {
 public:
  class Owner {
   public:
    virtual Endpoint &endpoint() = 0;
    virtual std::string peer_name() const = 0;  // "process 4711 on hostb", for messages
    // The peer hung up as agreed; this connection is closed. Must not destroy it before the callback returns.
    virtual void ended(Connection &connection) = 0;
    // It is unusable; the owner closes it.
    virtual void broke(const Status &why) = 0;

   protected:
    ~Owner() = default;
  };
  enum class Canceled { unknown, unsent, partly };

  virtual ~Connection() = default;
  virtual Status open() = 0;
  virtual void close() = 0;
  virtual bool is_open() const = 0;
  virtual void after_fork() = 0;
  // What moves the messages now, where a transport has several ways; else null.
  virtual const char *path() const { return nullptr; }
  virtual std::string peer_counters() const { return {}; }  // as Endpoint's
  virtual bool carries(const ChipMemory &) const { return false; }

  virtual Sent send(Outgoing &message) = 0;
  // For messages that waited for the connection: queues without sending; then flush.
  virtual void enqueue(Outgoing &message) = 0;
  virtual void flush() = 0;  // from inside dispatch only
  virtual Canceled cancel(Outgoing &message) = 0;
  virtual void revoke(Incoming &into) { into.data = nullptr; }  // as Endpoint::revoke
  virtual Status hand_over(int /*fd*/) {                        // as Endpoint's
    return Status::make(DICOMM_NOT_SUPPORTED, "descriptors cannot be handed over on this path");
  }
  virtual UniqueFd take_handed() { return {}; }
  virtual uint64_t queued_bytes() const = 0;
  // Behind what is queued. The connection ends when the peer hangs up.
  virtual void say_goodbye() = 0;
  // False: nothing is under way that its host has not acknowledged. Tells the owner when the host is silent.
  virtual bool watch() = 0;
};

}  // namespace dicomm
