#include "transport/tcp/transport.h"

#include <netinet/in.h>

#include <charconv>

#include "transport/tcp/connection.h"
#include "transport/tcp/interface.h"

namespace dicomm {
namespace {

constexpr size_t kScratch = size_t{64} << 10;

}  // namespace

TcpTransport::TcpTransport(Reactor &reactor, Sink &sink, const TcpOptions &options)
    : StreamTransport(reactor, sink, "tcp", options),
      interface_(options.interface),
      route_to_(options.route_to),
      scratch_(kScratch) {}

Status TcpTransport::open() {
  SocketAddress address;
  DICOMM_TRY(choose_address(interface_, route_to_, address));
  return listen(address);
}

TransportLimits TcpTransport::limits() const { return {kMaxPayload, kBulkChunk}; }

// "tcp HOST PORT". The scope of a link-local address means something on this machine only.
std::string TcpTransport::address() const {
  const std::string host = listening().host();
  return concat("tcp ", host.substr(0, host.find('%')), " ", listening().port());
}

Status TcpTransport::locate(const PeerAddress &peer, SocketAddress &out) const {
  const std::string_view line = line_of(peer.address, shared_.path);
  const size_t space = line.find(' ');
  unsigned port = 0;
  if (space != std::string_view::npos)
    std::from_chars(line.data() + space + 1, line.data() + line.size(), port);
  if (port == 0 || port > 65535)
    return Status::make(DICOMM_CONNECT_FAILED, "its address '", peer.address,
                        "' has no line \"tcp HOST PORT\"");
  DICOMM_TRY(parse_numeric(std::string(line.substr(0, space)), static_cast<uint16_t>(port), out));
  if (out.family() == AF_INET6 && listening().family() == AF_INET6) {
    auto &v6 = reinterpret_cast<sockaddr_in6 &>(out.storage);
    if (IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr))
      v6.sin6_scope_id = reinterpret_cast<const sockaddr_in6 &>(listening().storage).sin6_scope_id;
  }
  return {};
}

std::unique_ptr<Connection> TcpTransport::connection(Connection::Owner &owner, UniqueFd fd) {
  return std::make_unique<TcpConnection>(shared_, owner, std::move(fd), scratch_);
}

}  // namespace dicomm
