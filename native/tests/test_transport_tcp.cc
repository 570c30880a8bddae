// What only the tcp transport promises: strangers, keys, bounds on the wire, the order of its queues.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>

#include "base/handshake.h"
#include "base/net.h"
#include "transport/tcp/connection.h"
#include "transport/tcp/transport.h"
#include "transport_suite.h"

using namespace dicomm;
using suite::Party;

namespace {

struct Knobs {
  uint32_t sockets = 1;
  Nanos handshake_timeout = 5 * kSecond;
  Nanos connect_timeout = 10 * kSecond;
};

Party::Make tcp(const Knobs &knobs = {}) {
  return [=](Reactor &reactor, Sink &sink, const PeerAddress &self) -> std::unique_ptr<Transport> {
    TcpOptions options;
    options.self = self;
    options.interface = "127.0.0.1";
    options.sockets_per_peer = knobs.sockets;
    options.handshake_timeout = knobs.handshake_timeout;
    options.connect_timeout = knobs.connect_timeout;
    auto transport = std::make_unique<TcpTransport>(reactor, sink, options);
    REQUIRE(transport->open().ok());
    return transport;
  };
}

SocketAddress address_of(const Party &party) {
  const std::string port = party.self.address.substr(party.self.address.rfind(' ') + 1);
  SocketAddress address;
  REQUIRE(parse_numeric("127.0.0.1", static_cast<uint16_t>(std::stoi(port)), address).ok());
  return address;
}

UniqueFd raw_connection(const Party &to) {
  const SocketAddress address = address_of(to);
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::connect(fd.get(), address.get(), address.length) == 0);
  return fd;
}

// A peer made by hand, authenticated. Drives `to` meanwhile; the handshake's verdict is in `verdict`.
UniqueFd raw_peer(Party &to, const StreamHello &hello, Bytes key, Status &status, uint32_t &verdict) {
  UniqueFd fd = raw_connection(to);
  Hello bytes;
  std::memcpy(bytes.data(), &hello, sizeof(hello));
  Handshake handshake = Handshake::client(Service::transport, key, bytes);
  while (status.ok() && !handshake.done()) {
    status = pump(handshake, fd.get());
    to.step(now() + kMillisecond);
  }
  verdict = handshake.verdict();
  return fd;
}

StreamHello hello_for(const Party &to) {
  StreamHello hello{};
  random_bytes(hello.id);
  hello.target = to.self.id;
  std::strcpy(hello.host, "raw");
  return hello;
}

bool hung_up(const UniqueFd &fd) {
  std::byte ignored[256];
  ssize_t n;
  while ((n = ::recv(fd.get(), ignored, sizeof(ignored), MSG_DONTWAIT)) > 0) {
  }
  return n == 0 || (n < 0 && errno != EAGAIN);
}

}  // namespace

TEST_CASE("tcp: strangers are dropped and counted while traffic goes on") {
  Party a(tcp(), 1), b(tcp({1, 300 * kMillisecond, 10 * kSecond}), 2);
  a.send(b, Lane::control, 1);
  REQUIRE(suite::drive({&a, &b}, [&] { return b.complete() == 1; }));
  const uint64_t before = counter(b, "connections");

  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 100; ++i) {
    strangers.push_back(raw_connection(b));
    std::vector<std::byte> garbage(i % 4 == 0 ? 0 : 40 * static_cast<size_t>(i));
    random_bytes(garbage);
    if (i % 4 == 1 && garbage.size() > 6) std::memcpy(garbage.data(), "dicomm", 6);
    if (!garbage.empty()) ::send(strangers.back().get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
    a.send(b, Lane::control, 100);
    a.step();
    b.step();
  }
  Party c(tcp(), 3);  // a member gets in all the same
  c.send(b, Lane::control, 3);
  REQUIRE(suite::drive({&a, &b, &c}, [&] { return b.complete() == 102; }));
  REQUIRE(suite::drive({&a, &b}, [&] { return counter(b, "strangers_dropped") == 100; }));
  for (const UniqueFd &fd : strangers) CHECK(hung_up(fd));
  CHECK(counter(b, "connections") == before + 1);
  CHECK(a.failed.empty());
  CHECK(b.failed.empty());
}

TEST_CASE("tcp: who does not know the key gets nothing, and is told why") {
  Party a(tcp(), 1), b(tcp(), 2);
  PeerAddress wrong = b.self;
  wrong.key[0] ^= std::byte{1};
  a.send(a.transport->endpoint(wrong), Lane::control, 10);
  REQUIRE(suite::drive({&a, &b}, [&] { return !a.failed.empty() && counter(b, "strangers_dropped") == 1; }));
  CHECK(a.failed.size() == 1);
  CHECK(a.failed[0].why.code() == DICOMM_CONNECT_FAILED);
  CHECK(a.failed[0].why.message().find("secret") != std::string::npos);
  CHECK(b.arrived.empty());
  // A client that ignores that the server is not proven to it still has to prove itself.
  Status status;
  uint32_t verdict = 99;
  const StreamHello hello = hello_for(b);
  const UniqueFd fd = raw_peer(b, hello, wrong.key, status, verdict);
  CHECK(status.code() == DICOMM_CONNECT_FAILED);
  CHECK(counter(b, "connections") == 0);
}

TEST_CASE("tcp: the hello names the target, so a recycled port is noticed") {
  Party b(tcp(), 2);
  StreamHello hello = hello_for(b);
  hello.target[3] ^= std::byte{1};
  Status status;
  uint32_t verdict = 99;
  const UniqueFd fd = raw_peer(b, hello, b.self.key, status, verdict);
  CHECK(status.ok());
  CHECK(verdict == kVerdictNotMe);

  Party a(tcp(), 1);
  PeerAddress old = b.self;
  random_bytes(old.id);
  a.send(a.transport->endpoint(old), Lane::control, 1);
  REQUIRE(suite::drive({&a, &b}, [&] { return !a.failed.empty(); }));
  CHECK(a.failed[0].why.code() == DICOMM_CONNECT_FAILED);
  CHECK(a.failed[0].why.message().find("restarted") != std::string::npos);
}

TEST_CASE("tcp: other versions and byte orders are named") {
  Party b(tcp(), 2);
  for (const bool version : {true, false}) {
    const Hello hello{};
    Handshake client = Handshake::client(Service::transport, b.self.key, hello);
    std::vector<std::byte> greeting(client.output().begin(), client.output().end());
    if (version)
      greeting[7] = std::byte{200};
    else
      std::swap_ranges(greeting.begin() + 8, greeting.begin() + 10, greeting.begin() + 10);
    // The server's view.
    Handshake server = Handshake::server(Service::transport, b.self.key);
    std::copy(greeting.begin(), greeting.end(), server.input().begin());
    const Status seen = server.filled(greeting.size());
    CHECK(seen.code() == DICOMM_PROTOCOL);
    CHECK(seen.message().find(version ? "version 200" : "byte order") != std::string::npos);
    // And it still tells its own version before it hangs up.
    const UniqueFd fd = raw_connection(b);
    REQUIRE(::send(fd.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL) == 32);
    pollfd p{fd.get(), POLLIN, 0};
    REQUIRE(suite::drive({&b}, [&] { return ::poll(&p, 1, 0) == 1; }));
    std::byte answer[64];
    REQUIRE(::recv(fd.get(), answer, sizeof(answer), 0) == 64);
    CHECK(std::memcmp(answer, "dicommt\x01", 8) == 0);
    CHECK(suite::drive({&b}, [&] { return hung_up(fd); }));
  }
}

TEST_CASE("tcp: lengths from the wire are bounded, and so is what follows a goodbye") {
  Party b(tcp(), 2);
  for (const uint64_t length : {uint64_t{1} << 20 | 1, uint64_t{1} << 40, kGoodbye - 1, kGoodbye}) {
    CAPTURE(length);
    b.failed.clear();
    Status status;
    uint32_t verdict = 99;
    const UniqueFd fd = raw_peer(b, hello_for(b), b.self.key, status, verdict);
    REQUIRE(status.ok());
    REQUIRE(verdict == kVerdictAccept);
    const uint64_t words[2] = {length, 7};
    REQUIRE(::send(fd.get(), words, sizeof(words), MSG_NOSIGNAL) == sizeof(words));
    if (length == kGoodbye) ::send(fd.get(), words, sizeof(words), MSG_NOSIGNAL);
    REQUIRE(suite::drive({&b}, [&] { return !b.failed.empty() || hung_up(fd); }, 5 * kSecond));
    REQUIRE(suite::drive({&b}, [&] { return !b.failed.empty(); }, 5 * kSecond));
    CHECK(b.failed[0].why.code() == DICOMM_PROTOCOL);
    CHECK_FALSE(b.failed[0].clean);
    CHECK(b.failed[0].why.failure()->peer_host == "raw");
  }
  CHECK(b.arrived.empty());
}

TEST_CASE("tcp: nobody listens") {
  Party a(tcp(), 1);
  PeerAddress gone;
  {
    const Party b(tcp(), 2);
    gone = b.self;
  }
  const Nanos start = now();
  a.send(a.transport->endpoint(gone), Lane::control, 1);
  CHECK(a.failed.empty());
  REQUIRE(suite::drive({&a}, [&] { return !a.failed.empty(); }));
  CHECK(now() - start < kSecond);
  const Failure &failure = *a.failed[0].why.failure();
  CHECK(failure.code == DICOMM_CONNECT_FAILED);
  CHECK(failure.foreign_code == ECONNREFUSED);
  CHECK(failure.path == "tcp");
  CHECK(failure.peer_host == "host2");
  CHECK(failure.text.find("127.0.0.1:") != std::string::npos);

  gone.address = "tcp nonsense";
  a.send(a.transport->endpoint(gone), Lane::control, 1);
  REQUIRE(suite::drive({&a}, [&] { return a.failed.size() == 2; }));
  CHECK(a.failed[1].why.code() == DICOMM_CONNECT_FAILED);
}

TEST_CASE("tcp: a listener that never answers") {
  Party a(tcp({1, 5 * kSecond, 200 * kMillisecond}), 1), b(tcp(), 2);
  a.send(b, Lane::control, 1);
  REQUIRE(suite::drive({&a}, [&] { return !a.failed.empty(); }));  // b is not driven
  CHECK(a.failed[0].why.code() == DICOMM_CONNECT_FAILED);
  CHECK(a.failed[0].why.failure()->foreign_code == ETIMEDOUT);
  CHECK(a.failed[0].why.failure()->waited_ns >= 200 * kMillisecond);
  CHECK(a.transport->shutdown());
}

TEST_CASE("tcp: control messages do not stand behind queued bulk messages") {
  Party a(tcp(), 1), b(tcp(), 2);
  a.send(b, Lane::control, 1);
  REQUIRE(suite::drive({&a, &b}, [&] { return b.complete() == 1; }));
  for (int i = 0; i < 40; ++i) a.send(b, Lane::bulk, 1 << 20);
  REQUIRE_FALSE(a.all_sent());
  const uint64_t small = a.send(b, Lane::control, 1).tag.number;
  REQUIRE(suite::drive({&a, &b}, [&] { return b.complete() == 42; }));
  size_t position = 0;
  for (const suite::Arrival &arrival : b.arrived) {
    if (arrival.tag.number == small) break;
    ++position;
  }
  CHECK(position < 35);
  suite::check_delivery(a, b, true);
}

TEST_CASE("tcp: bulk messages use all sockets, and all go when one breaks") {
  Party a(tcp({4}), 1), b(tcp(), 2);
  a.send(b, Lane::control, 1);
  REQUIRE(suite::drive({&a, &b},
                       [&] { return counter(a, "connections") == 4 && counter(b, "connections") == 4; }));
  for (int i = 0; i < 60; ++i) a.send(b, Lane::bulk, 300000);
  REQUIRE(suite::drive({&a, &b}, [&] { return b.complete() == 61; }));
  suite::check_delivery(a, b, false);
  CHECK(counter(a, "bytes_sent") == 60 * 300000 + 1);
  CHECK(counter(b, "bytes_received") == 60 * 300000 + 1);
  CHECK(counter(b, "messages_received") == 61);
  a.transport.reset();
  REQUIRE(suite::drive({&b}, [&] { return !b.failed.empty(); }));
  CHECK(b.failed.size() == 1);
  CHECK(counter(b, "connections") == 0);
}

TEST_CASE("tcp: out of descriptors the listener rests instead of spinning") {
  Party a(tcp(), 1), b(tcp(), 2);
  const SocketAddress address = address_of(b);
  UniqueFd waiting(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  {
    std::vector<UniqueFd> all;
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    const rlimit tight{static_cast<rlim_t>(waiting.get() + 8), before.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &tight);
    for (int fd = 0; fd >= 0;) {
      fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
      all.emplace_back(fd);
    }
    CHECK(::connect(waiting.get(), address.get(), address.length) == 0);
    int ran = 0;
    for (const Nanos end = now() + 500 * kMillisecond; now() < end;) ran += b.step(now() + 50 * kMillisecond);
    ::setrlimit(RLIMIT_NOFILE, &before);
    CHECK(ran >= 2);
    CHECK(ran < 30);
  }
  a.send(b, Lane::control, 1);
  CHECK(suite::drive({&a, &b}, [&] { return b.complete() == 1; }));
}

TEST_CASE("tcp: many connect at once, more than are heard at once") {
  Party hub(tcp(), 1);
  std::vector<std::unique_ptr<Party>> spokes;
  std::vector<Party *> all = {&hub};
  for (uint64_t i = 0; i < 150; ++i) {
    spokes.push_back(std::make_unique<Party>(tcp(), i + 2));
    all.push_back(spokes.back().get());
    spokes.back()->send(hub, Lane::control, 10);
  }
  for (Party *party : all)
    if (party != &hub) party->step();
  REQUIRE(suite::drive(all, [&] { return hub.complete() == 150; }));
  CHECK(counter(hub, "strangers_dropped") == 0);
  CHECK(counter(hub, "connections") == 150);
  for (const auto &spoke : spokes) CHECK(spoke->failed.empty());
}

TEST_CASE("tcp: one peer's flood does not starve another") {
  Party a(tcp(), 1), b(tcp(), 2), c(tcp(), 3);
  a.send(b, Lane::control, 1);
  c.send(b, Lane::control, 1);
  REQUIRE(suite::drive({&a, &b, &c}, [&] { return b.complete() == 2; }));
  for (int i = 0; i < 64; ++i) a.send(b, Lane::bulk, 1 << 20);
  c.send(b, Lane::control, 5);
  size_t bulk_before = 0;
  b.on_complete = [&](Endpoint &, suite::Arrival &arrival) {
    if (arrival.payload.size() == 5) bulk_before = b.complete();
  };
  REQUIRE(suite::drive({&a, &b, &c}, [&] { return b.complete() == 67; }));
  CHECK(bulk_before < 20);
}
