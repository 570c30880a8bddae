// The rdma transport and a program that is not dicomm, tests/rdma_vm/programs/verbs_peer.py, which
// knows of us what frame.h and handshake.h say. Run by tests/rdma_vm/test_peer.py.
#include <doctest/doctest.h>

#include <cstdio>

#include "transport/verbs/transport.h"
#include "transport_party.h"

using namespace dicomm;
using suite::Party;

namespace {

std::string hex(Bytes bytes) {
  std::string out;
  char digits[3];
  for (const std::byte byte : bytes) {
    std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned>(byte));
    out += digits;
  }
  return out;
}

}  // namespace

TEST_CASE("transport rdma echoes what another program sends" * doctest::skip()) {
  Party party(
      [](Reactor &reactor, Sink &sink, const PeerAddress &self) {
        VerbsOptions options;
        options.self = self;
        options.log = [](const std::string &line) { FAIL_CHECK(line); };
        auto transport = std::make_unique<VerbsTransport>(reactor, sink, options);
        const Status status = transport->open();
        REQUIRE_MESSAGE(status.ok(), status.message());
        return transport;
      },
      1);
  std::printf("\nlistening %s %s %s\n", hex(party.self.id).c_str(), hex(party.self.key).c_str(),
              party.self.address.c_str());
  std::fflush(stdout);
  party.on_complete = [&](Endpoint &from, suite::Arrival &arrival) {
    CHECK(std::string(from.path()) == "rdma-direct");
    suite::Message &message = party.sent.emplace_back();
    message.tag = arrival.tag;
    message.data = arrival.payload;
    message.out.header.fill(std::byte{0x5a});
    std::memcpy(message.out.header.data(), &message.tag, sizeof(message.tag));
    message.out.data = message.data.data();
    message.out.size = message.data.size();
    message.out.lane = static_cast<Lane>(message.tag.lane);
    if (from.send(message.out) == Sent::done) message.state = suite::Message::sent;
  };
  // It comes twice: with an id below ours, so that it makes the first move, and with one above.
  const Nanos deadline = deadline_after(100 * kSecond);
  while (party.failed.size() < 2 && now() < deadline) party.step(now() + kSecond);
  REQUIRE(party.failed.size() == 2);
  for (const suite::Failed &failed : party.failed) {
    INFO(failed.why.message());
    CHECK(failed.clean);
  }
  CHECK(party.all_sent());
  CHECK(party.complete() == party.sent.size());
  CHECK(counter(party, "links") == 2);
  CHECK(counter(party, "fallbacks") == 0);
  CHECK(counter(party, "socket_bytes") == 0);
  CHECK(counter(party, "direct_bytes") > 0);
}
