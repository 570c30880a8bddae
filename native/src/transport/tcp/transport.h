// tcp: messages over stream sockets and epoll; IPv4 and IPv6. One listener per Context, on one address.
//
// Not here: encryption, and hosts of different byte order in one job (refused in the handshake).
#pragma once

#include "transport/stream/transport.h"

namespace dicomm {

struct TcpOptions : StreamOptions {
  std::string interface = {};
  std::string route_to = {};
};

class TcpTransport final : public StreamTransport {
 public:
  TcpTransport(Reactor &reactor, Sink &sink, const TcpOptions &options);
  ~TcpTransport() override { clear(); }
  Status open();

  std::string address() const override;

 private:
  Status locate(const PeerAddress &peer, SocketAddress &out) const override;
  std::unique_ptr<Connection> connection(Connection::Owner &owner, UniqueFd fd) override;

  const std::string interface_, route_to_;
  std::vector<std::byte> scratch_;
};

}  // namespace dicomm
