// The transports of this build in the conformance suite.
#include "transport/loopback/transport.h"
#include "transport/registry.h"
#include "transport/shm/transport.h"
#include "transport/tcp/transport.h"
#include "transport_suite.h"

using namespace dicomm;

namespace {

suite::Party::Make tcp(const char *interface, uint32_t sockets) {
  return [=](Reactor &reactor, Sink &sink, const PeerAddress &self) -> std::unique_ptr<Transport> {
    TcpOptions options;
    options.self = self;
    options.interface = interface;
    options.sockets_per_peer = sockets;
    auto transport = std::make_unique<TcpTransport>(reactor, sink, options);
    const Status status = transport->open();
    INFO(status.message());
    REQUIRE(status.ok());
    return transport;
  };
}

suite::Party::Make shm(bool fetch) {
  return [=](Reactor &reactor, Sink &sink, const PeerAddress &self) -> std::unique_ptr<Transport> {
    ShmOptions options;
    options.self = self;
    options.fetch = fetch;
    auto transport = std::make_unique<ShmTransport>(reactor, sink, options);
    const Status status = transport->open();
    INFO(status.message());
    REQUIRE(status.ok());
    return transport;
  };
}

std::unique_ptr<Transport> loopback(Reactor &reactor, Sink &sink, const PeerAddress &self) {
  return std::make_unique<LoopbackTransport>(reactor, sink, self.id);
}

}  // namespace

DICOMM_TRANSPORT_SUITE("loopback", suite::Setup{loopback, true})
DICOMM_TRANSPORT_SUITE("shm", suite::Setup{shm(true)})
DICOMM_TRANSPORT_SUITE("shm, through the ring only", suite::Setup{shm(false)})
DICOMM_TRANSPORT_SUITE("tcp", suite::Setup{tcp("127.0.0.1", 1)})
DICOMM_TRANSPORT_SUITE("tcp, three sockets", suite::Setup{tcp("127.0.0.1", 3), false, false})
DICOMM_TRANSPORT_SUITE("tcp over IPv6", suite::Setup{tcp("::1", 1)})

TEST_CASE("transport registry") {
  Reactor reactor;
  REQUIRE(reactor.open().ok());
  const suite::Party sink(loopback, 1);
  TransportOptions options;
  random_bytes(options.self.id);
  options.interface = "lo";
  Transports transports;
  REQUIRE(make_transports(reactor, const_cast<suite::Party &>(sink), options, transports).ok());
  CHECK(transports.size() >= transport_names().size() - 1);  // rdma where there is a card
  const std::string text = addresses(transports);
  CHECK(text.find("tcp 127.0.0.1 ") != std::string::npos);

  PeerAddress self = options.self, peer;
  self.address = text;
  CHECK(choose_transport(transports, self)->name() == std::string("loopback"));
  random_bytes(peer.id);
  CHECK(choose_transport(transports, peer) == nullptr);
  peer.address = "new 1 2 3\n" + text + "\nother";
  CHECK(choose_transport(transports, peer)->name() == std::string("shm"));
  peer.address = text.substr(text.find("tcp "));  // a process of another host
  CHECK(choose_transport(transports, peer)->name() == std::string("tcp"));

  options.interface = "nonesuch0";
  const Status status = make_transports(reactor, const_cast<suite::Party &>(sink), options, transports);
  CHECK(status.code() == DICOMM_INVALID_ARGUMENT);
  CHECK(status.message().find("lo") != std::string::npos);
  options.interface = "";
  options.route_to = "127.0.0.1";
  REQUIRE(make_transports(reactor, const_cast<suite::Party &>(sink), options, transports).ok());
  CHECK(addresses(transports).find("tcp 127.0.0.1 ") != std::string::npos);
  options.paths = "tcp";
  REQUIRE(make_transports(reactor, const_cast<suite::Party &>(sink), options, transports).ok());
  CHECK(addresses(transports).starts_with("tcp 127.0.0.1 "));
  options.paths = "tcp>teleport";
  CHECK(make_transports(reactor, const_cast<suite::Party &>(sink), options, transports).code() ==
        DICOMM_INVALID_ARGUMENT);
}
