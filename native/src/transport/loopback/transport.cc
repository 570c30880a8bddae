#include "transport/loopback/transport.h"

#include <cstring>

namespace dicomm {

LoopbackTransport::LoopbackTransport(Reactor &reactor, Sink &sink, const ContextId &self)
    : reactor_(reactor),
      sink_(sink),
      self_(self),
      self_reference_(std::make_shared<LoopbackTransport *>(this)) {}

LoopbackTransport::~LoopbackTransport() { *self_reference_ = nullptr; }

Endpoint &LoopbackTransport::endpoint(const PeerAddress &) { return *this; }

Sent LoopbackTransport::send(Outgoing &message) {
  message.next = nullptr;
  *end_ = &message;
  end_ = &message.next;
  schedule();
  return Sent::queued;
}

bool LoopbackTransport::cancel(Outgoing &message) {
  if (&message == delivering_) {
    copy_.assign(message.data, message.data + message.size);
    source_ = copy_.data();
    delivering_ = nullptr;
    return false;
  }
  for (Outgoing **link = &first_; *link != nullptr; link = &(*link)->next) {
    if (*link != &message) continue;
    *link = message.next;
    if (end_ == &message.next) end_ = link;
    return true;
  }
  return false;
}

void LoopbackTransport::schedule() {
  if (scheduled_) return;
  scheduled_ = true;
  reactor_.post([reference = self_reference_] {
    if (LoopbackTransport *transport = *reference) transport->deliver();
  });
}

void LoopbackTransport::deliver() {
  scheduled_ = false;
  while (first_ != nullptr) deliver_first();
}

void LoopbackTransport::deliver_first() {
  Outgoing &message = *first_;
  first_ = message.next;
  if (first_ == nullptr) end_ = &first_;
  delivering_ = &message;
  source_ = message.data;
  const Header header = message.header;
  const size_t size = message.size;

  Incoming *into = sink_.on_header(*this, header, size);
  if (into == nullptr) {
    delivering_ = nullptr;
    first_ = nullptr;
    end_ = &first_;
    const Status why = Status::make(DICOMM_PROTOCOL, "a message to this process itself is not acceptable");
    sink_.on_failed(*this, why.with([](Failure &f) { f.path = "loopback"; }), false);
    return;
  }
  if (into->data != nullptr && size != 0) std::memcpy(into->data, source_, size);
  ++messages_;
  bytes_ += size;
  sink_.on_payload(*this, header, size, into);
  if (delivering_ == nullptr) return;  // canceled meanwhile
  delivering_ = nullptr;
  sink_.on_sent(*this, message);
}

std::string LoopbackTransport::counters() const {
  return concat("\"bytes\": ", bytes_, ", \"messages\": ", messages_);
}

}  // namespace dicomm
