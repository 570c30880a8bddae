#include "transport/registry.h"

#include "transport/loopback/transport.h"
#include "transport/tcp/transport.h"

namespace dicomm {

Status make_transports(Reactor &reactor, Sink &sink, const TransportOptions &options, Transports &out) {
  out.clear();
  out.push_back(std::make_unique<LoopbackTransport>(reactor, sink, options.self.id));

  TcpOptions tcp;
  tcp.self = options.self;
  tcp.interface = options.interface;
  tcp.route_to = options.route_to;
  tcp.sockets_per_peer = options.sockets_per_peer;
  tcp.handshake_timeout = options.handshake_timeout;
  tcp.connect_timeout = options.connect_timeout;
  auto transport = std::make_unique<TcpTransport>(reactor, sink, tcp);
  DICOMM_TRY(transport->open());
  out.push_back(std::move(transport));
  return {};
}

std::string addresses(const Transports &transports) {
  std::string text;
  for (const auto &transport : transports) {
    const std::string line = transport->address();
    if (line.empty()) continue;
    if (!text.empty()) text += '\n';
    text += line;
  }
  return text;
}

Transport *choose_transport(const Transports &transports, const PeerAddress &peer) {
  for (const auto &transport : transports)
    if (transport->reaches(peer)) return transport.get();
  return nullptr;
}

std::vector<std::string> transport_names() { return {"loopback", "tcp"}; }

}  // namespace dicomm
