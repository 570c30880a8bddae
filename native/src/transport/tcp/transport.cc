#include "transport/tcp/transport.h"

#include "transport/stream/interface.h"
#include "transport/tcp/connection.h"

namespace dicomm {
namespace {

constexpr size_t kScratch = size_t{64} << 10;

}  // namespace

TcpTransport::TcpTransport(Reactor &reactor, Sink &sink, const TcpOptions &options)
    : StreamTransport(reactor, sink, "tcp", {kMaxPayload, kBulkChunk}, options),
      interface_(options.interface),
      route_to_(options.route_to),
      scratch_(kScratch) {}

Status TcpTransport::open() {
  SocketAddress address;
  DICOMM_TRY(choose_address(interface_, route_to_, address));
  return listen(address);
}

// "tcp HOST PORT"
std::string TcpTransport::address() const { return concat("tcp ", host_and_port(listening())); }

Status TcpTransport::locate(const PeerAddress &peer, SocketAddress &out) const {
  return parse_host_and_port(line_of(peer.address, shared_.path), listening(), out);
}

std::unique_ptr<Connection> TcpTransport::connection(Connection::Owner &owner, UniqueFd fd) {
  return std::make_unique<TcpConnection>(shared_, owner, std::move(fd), scratch_);
}

}  // namespace dicomm
