// tcp: stream sockets and epoll; IPv4 and IPv6. One listener per Context, on one address.
//
// Not here: encryption, and hosts of different byte order in one job (refused in the handshake).
// Must not be destroyed from inside a Sink callback.
#pragma once

#include <map>
#include <memory>

#include "transport/tcp/endpoint.h"
#include "transport/tcp/listener.h"

namespace dicomm {

class TcpTransport final : public Transport, private TcpEndpoint::Owner, private Listener::Owner {
 public:
  TcpTransport(Reactor &reactor, Sink &sink, const TcpOptions &options);
  ~TcpTransport() override;
  Status open();

  const char *name() const override { return "tcp"; }
  TransportLimits limits() const override { return {kMaxPayload, kBulkChunk}; }
  std::string address() const override;
  bool reaches(const PeerAddress &peer) const override;
  Endpoint &endpoint(const PeerAddress &peer) override;
  bool shutdown() override;
  void after_fork() override;
  std::string counters() const override;

 private:
  static constexpr Nanos kWatch = kSecond;

  void doomed(TcpEndpoint &endpoint) override;
  uint32_t admit(const TcpHello &hello) override;
  void adopt(const TcpHello &hello, UniqueFd fd) override;
  TcpEndpoint &make_endpoint(const ContextId &peer, const std::string &host, uint64_t process);
  Status parse(const PeerAddress &peer, SocketAddress &out) const;
  void bury();
  void watch_later();
  void watch();

  TcpShared shared_;
  // Tasks posted to the reactor may outlive us: they hold this and look whether it is still ours.
  std::shared_ptr<TcpTransport *> self_reference_;
  Listener listener_;
  std::map<ContextId, std::unique_ptr<TcpEndpoint>> endpoints_;
  bool bury_posted_ = false;
  bool leaving_ = false;
  Reactor::Timer watch_timer_{};
};

}  // namespace dicomm
