// loopback: messages a Context sends to itself. One memcpy, no descriptor, no thread.
#pragma once

#include <vector>

#include "transport/transport.h"

namespace dicomm {

class LoopbackTransport final : public Transport, private Endpoint {
 public:
  LoopbackTransport(Reactor &reactor, Sink &sink, const ContextId &self);
  ~LoopbackTransport() override;

  const char *name() const override { return "loopback"; }
  TransportLimits limits() const override { return {kMaxPayload, kMaxPayload / 4}; }
  std::string address() const override { return ""; }
  bool reaches(const PeerAddress &peer) const override { return peer.id == self_; }
  Endpoint &endpoint(const PeerAddress &peer) override;
  bool shutdown() override { return first_ == nullptr && !delivering_; }
  void after_fork() override {}
  std::string counters() const override;

 private:
  static constexpr size_t kMaxPayload = size_t{16} << 20;  // bounds the time one memcpy holds the engine lock

  const ContextId &peer() const override { return self_; }
  const char *path() const override { return "loopback"; }
  // Always queued: the sink is only called from dispatch.
  Sent send(Outgoing &message) override;
  bool cancel(Outgoing &message) override;

  void schedule();
  void deliver();
  void deliver_first();

  Reactor &reactor_;
  Sink &sink_;
  const ContextId self_;
  // Tasks posted to the reactor may outlive us: they hold this and look whether it is still ours.
  std::shared_ptr<LoopbackTransport *> self_reference_;
  bool scheduled_ = false;

  Outgoing *first_ = nullptr;
  Outgoing **end_ = &first_;
  Outgoing *delivering_ = nullptr;  // unlinked, its callbacks are running
  const std::byte *source_ = nullptr;
  std::vector<std::byte> copy_;  // of a message canceled while it is delivered
  uint64_t messages_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace dicomm
