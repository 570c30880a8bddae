// What the connections of all stream transports do alike: they queue, count, and talk to the sink and to
// their owner.
#pragma once

#include "transport/stream/queue.h"
#include "transport/stream/shared.h"

namespace dicomm {

class MessageConnection : public Connection {
 public:
  void enqueue(Outgoing &message) override {
    message.progress = 0;
    (message.lane == Lane::control ? control_ : bulk_).push(message);
  }

 protected:
  MessageConnection(StreamShared &shared, Owner &owner) : shared_(shared), owner_(owner) {}

  void fail(const Status &why) {
    if (is_open()) owner_.broke(why);
  }
  // The stream ended before that was agreed on.
  static Status no_goodbye() {
    return Status::make(DICOMM_PEER_LOST, "its process ended or closed the connection without a goodbye");
  }
  void count_sent(size_t bytes) {
    ++shared_.counters.messages_sent;
    shared_.counters.bytes_sent += bytes;
  }
  // Tells the sink of all in sent_.
  void report_sent() {
    while (!sent_.empty() && is_open()) shared_.sink.on_sent(owner_.endpoint(), *sent_.pop());
  }
  // A message with a payload of `size` bytes has begun; `into` is where that goes. False: the connection is
  // closed.
  bool announce(const Header &header, size_t size, Incoming *&into) {
    into = shared_.sink.on_header(owner_.endpoint(), header, size);
    if (!is_open()) return false;
    if (into == nullptr) fail(Status::make(DICOMM_PROTOCOL, "it sent a message that is not acceptable"));
    return into != nullptr;
  }
  // All of it is there.
  void deliver(const Header &header, size_t size, Incoming *into) {
    ++shared_.counters.messages_received;
    shared_.counters.bytes_received += size;
    shared_.sink.on_payload(owner_.endpoint(), header, size, into);
  }

  StreamShared &shared_;
  Owner &owner_;
  MessageQueue control_, bulk_;
  MessageQueue sent_;  // on_sent is due
};

}  // namespace dicomm
