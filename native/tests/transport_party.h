// A Context's worth of transport for tests: it sends messages whose payloads follow from their numbers, keeps
// what arrives, and checks the contract's promises to the sink.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <list>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "hidden_chip.h"
#include "transport/transport.h"

namespace dicomm::suite {

inline constexpr Nanos kLimit = 60 * kSecond;  // a whole scenario, under sanitizers

inline std::vector<std::byte> pattern(uint64_t number, size_t size) {
  std::vector<std::byte> out(size);
  uint64_t x = number * 0x9e3779b97f4a7c15 + 1;
  for (size_t i = 0; i < size; i += sizeof(x)) {
    x = x * 6364136223846793005 + 1442695040888963407;
    std::memcpy(out.data() + i, &x, std::min(sizeof(x), size - i));
  }
  return out;
}

// Not by ==, which sanitizers slow down byte by byte.
inline bool is_pattern(const std::vector<std::byte> &bytes, uint64_t number) {
  return bytes.empty() || std::memcmp(bytes.data(), pattern(number, bytes.size()).data(), bytes.size()) == 0;
}

struct Tag {
  uint64_t number = 0;
  uint64_t lane = 0;
};

struct Message {
  Outgoing out;
  std::vector<std::byte> data;
  Tag tag;
  enum { with_transport, sent, canceled, lost } state = with_transport;
  bool blank = false;  // taken back in a chip's memory: zeros arrive
};

struct Arrival : Incoming {
  Tag tag;
  Endpoint *from = nullptr;
  std::vector<std::byte> payload;
  bool complete = false;
};

struct Failed {
  Endpoint *endpoint;
  Status why;
  bool clean;
};

// One Context: reactor, transport, and a sink that records and checks.
class Party final : public Sink {
 public:
  using Make = std::function<std::unique_ptr<Transport>(Reactor &, Sink &, const PeerAddress &self)>;

  explicit Party(const Make &make, uint64_t process) {
    random_bytes(self.id);
    random_bytes(self.key);
    self.host = "host" + std::to_string(process);
    self.process = process;
    REQUIRE(reactor.open().ok());
    transport = make(reactor, *this, self);
    self.address = transport->address();
  }

  Message &send(Endpoint &to, Lane lane, size_t size) {
    Message &message = sent.emplace_back();
    message.tag = {next_number++, static_cast<uint64_t>(lane)};
    message.data = pattern(message.tag.number, size);
    message.out.header.fill(std::byte{0x5a});
    std::memcpy(message.out.header.data(), &message.tag, sizeof(Tag));
    message.out.data = message.data.data();
    message.out.size = size;
    message.out.lane = lane;
    if (lane == Lane::bulk && chip && size > 0 && to.carries(*chip)) {
      std::byte *const data = chip->allocate(size);
      chip->write(data, message.data);
      message.out.data = data;
      message.out.chip = chip.get();
    }
    if (to.send(message.out) == Sent::done) finish(message);
    return message;
  }
  Message &send(const Party &to, Lane lane, size_t size) {
    return send(transport->endpoint(to.self), lane, size);
  }

  bool cancel(Endpoint &to, Message &message) {
    const bool unsent = to.cancel(message.out);
    message.state = unsent ? Message::canceled : Message::sent;
    message.blank = !unsent && message.out.chip != nullptr;
    scribble(message);
    return unsent;
  }

  bool step(Nanos until = 0) {
    Reactor::Batch batch;
    const bool busy = reactor.arm() || reactor.has_posted();
    reactor.fetch(batch, busy ? 0 : std::min(until, reactor.next_timer()));
    reactor.disarm();
    dispatching = true;
    const bool ran = reactor.dispatch(batch);
    dispatching = false;
    return ran;
  }

  size_t complete() const {
    size_t n = 0;
    for (const Arrival &arrival : arrived) n += arrival.complete;
    return n;
  }
  bool all_sent() const {
    for (const Message &message : sent)
      if (message.state == Message::with_transport) return false;
    return true;
  }

  Incoming *on_header(Endpoint &from, const Header &header, size_t size) override {
    CHECK(dispatching);
    if (refuse) return nullptr;
    Arrival &arrival = arrived.emplace_back();
    std::memcpy(&arrival.tag, header.data(), sizeof(Tag));
    CHECK(header[kHeaderBytes - 1] == std::byte{0x5a});
    arrival.from = &from;
    arrival.payload.resize(size);
    arrival.data = discard ? nullptr : arrival.payload.data();
    if (!discard && arrival.tag.lane != 0 && chip && size > 0 && from.carries(*chip)) {
      arrival.data = chip->allocate(size);
      arrival.chip = chip.get();
    }
    return &arrival;
  }
  void on_payload(Endpoint &from, const Header &header, size_t size, Incoming *into) override {
    CHECK(dispatching);
    auto &arrival = *static_cast<Arrival *>(into);
    CHECK(arrival.from == &from);
    CHECK(std::memcmp(&arrival.tag, header.data(), sizeof(Tag)) == 0);
    CHECK(arrival.payload.size() == size);
    CHECK_FALSE(arrival.complete);
    arrival.complete = true;
    if (arrival.chip != nullptr && arrival.data != nullptr) chip->read(arrival.data, arrival.payload);
    if (on_complete) on_complete(from, arrival);
  }
  void on_sent(Endpoint &, Outgoing &out) override {
    CHECK(dispatching);
    for (Message &message : sent)
      if (&message.out == &out) return finish(message);
    FAIL_CHECK("on_sent for an unknown message");
  }
  void on_failed(Endpoint &endpoint, const Status &why, bool clean) override {
    CHECK(dispatching);
    failed.push_back({&endpoint, why, clean});
  }

  Reactor reactor;
  PeerAddress self;
  std::list<Message> sent;
  std::list<Arrival> arrived;
  std::vector<Failed> failed;
  std::function<void(Endpoint &, Arrival &)> on_complete;
  uint64_t next_number = 1;
  bool dispatching = false;
  bool refuse = false;
  bool discard = false;
  std::unique_ptr<test::HiddenChip> chip;  // where its bulk messages are, where endpoints carry them
  std::unique_ptr<Transport> transport;

 private:
  // The caller may reuse its memory now.
  void scribble(Message &message) {
    std::fill(message.data.begin(), message.data.end(), std::byte{0xee});
    if (message.out.chip != nullptr && !message.blank)
      chip->write(const_cast<std::byte *>(message.out.data), message.data);
    message.out.header.fill(std::byte{0xee});
  }
  void finish(Message &message) {
    CHECK(message.state == Message::with_transport);
    message.state = Message::sent;
    scribble(message);
  }
};

// One of Transport::counters().
inline uint64_t counter(const Party &party, const std::string &name) {
  const std::string text = party.transport->counters();
  const size_t at = text.find('"' + name + "\": ");
  REQUIRE(at != std::string::npos);
  return std::stoull(text.substr(at + name.size() + 4));
}

using Parties = std::vector<std::unique_ptr<Party>>;

inline bool drive(const std::vector<Party *> &parties, const std::function<bool()> &done,
                  Nanos limit = kLimit) {
  const Nanos deadline = deadline_after(limit);
  while (!done()) {
    if (now() >= deadline) return false;
    bool ran = false;
    for (Party *party : parties) ran |= party->step();
    if (!ran) parties.front()->step(now() + kMillisecond);
  }
  return true;
}

// Everything complete that arrived at `to` is what `from` sent, once, in order within each lane.
inline void check_delivery(const Party &from, const Party &to, bool bulk_ordered) {
  std::set<uint64_t> blank;
  for (const Message &message : from.sent)
    if (message.blank) blank.insert(message.tag.number);
  std::map<uint64_t, int> seen;
  std::map<uint64_t, uint64_t> last;
  for (const Arrival &arrival : to.arrived) {
    if (!arrival.complete) continue;
    CHECK(++seen[arrival.tag.number] == 1);
    const bool intact = is_pattern(arrival.payload, arrival.tag.number);
    if (blank.contains(arrival.tag.number))
      CHECK((intact || arrival.payload == std::vector<std::byte>(arrival.payload.size())));
    else
      CHECK(intact);
    if (arrival.tag.lane != 0 && !bulk_ordered) continue;
    CHECK(arrival.tag.number > last[arrival.tag.lane]);
    last[arrival.tag.lane] = arrival.tag.number;
  }
  for (const Message &message : from.sent)
    CHECK(seen.count(message.tag.number) == (message.state == Message::sent ? 1u : 0u));
}

}  // namespace dicomm::suite
