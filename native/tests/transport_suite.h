// Conformance suite of transport/transport.h. A transport joins with one line in a test file:
//
//   DICOMM_TRANSPORT_SUITE("tcp", suite::Setup{make_it, /*to_itself=*/false});
//
// Several Contexts' worth of reactors live in one process; the test drives them from one thread.
#pragma once

#include <doctest/doctest.h>
#include <sys/wait.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/shared_memory.h"
#include "transport_party.h"

namespace dicomm::suite {

struct Setup {
  Party::Make make;
  bool to_itself = false;    // loopback: both ends are one Context, peers cannot connect or vanish
  bool bulk_ordered = true;  // false: bulk messages are spread and may overtake one another
  std::string absent = {};   // why it cannot be tested on this machine
  bool chip = false;         // bulk messages are in the memory of chips
};

// A sender and a receiver, which is the sender itself where the transport knows no other.
struct Pair {
  explicit Pair(const Setup &setup) : a(setup.make, 1) {
    if (!setup.to_itself) other = std::make_unique<Party>(setup.make, 2);
    if (!setup.chip) return;
    for (Party *party : both()) {
      party->chip = std::make_unique<test::HiddenChip>(party->reactor, true);
      party->transport->meet(*party->chip);
    }
  }
  Party &b() { return other ? *other : a; }
  std::vector<Party *> both() {
    return other ? std::vector<Party *>{&a, other.get()} : std::vector<Party *>{&a};
  }
  bool drive(const std::function<bool()> &done, Nanos limit = kLimit) {
    return suite::drive(both(), done, limit);
  }

  Party a;
  std::unique_ptr<Party> other;
};

inline bool has_peers(const Setup &setup) {
  if (setup.to_itself) MESSAGE("skipped: this transport serves only the process itself");
  return !setup.to_itself;
}

inline void sizes_and_order(const Setup &setup) {
  Pair pair(setup);
  std::mt19937 random(7);
  const size_t largest = std::min(pair.a.transport->limits().max_payload, size_t{1} << 20);
  std::vector<size_t> sizes = {0, 1, 63, 64, 65, 4096, 65535, 65536, 65537, largest};
  for (int i = 0; i < 600; ++i) sizes.push_back(random() % 9 == 0 ? random() % 300000 : random() % 300);
  size_t count = 0;
  for (const size_t size : sizes) {
    pair.a.send(pair.b(), random() % 3 == 0 ? Lane::bulk : Lane::control, size);
    ++count;
    if (random() % 10 == 0) pair.a.step();
  }
  CHECK(pair.drive([&] { return pair.b().complete() == count && pair.a.all_sent(); }));
  check_delivery(pair.a, pair.b(), setup.bulk_ordered);
  CHECK(pair.a.failed.empty());
}

inline void both_ways(const Setup &setup) {
  Pair pair(setup);
  int left = 200;
  const auto answer = [&](Party &party) {
    return [&](Endpoint &from, Arrival &) {
      if (left-- > 0) party.send(from, left % 5 == 0 ? Lane::bulk : Lane::control, 1000 * (left % 7));
    };
  };
  pair.a.on_complete = answer(pair.a);
  if (pair.other) pair.other->on_complete = answer(*pair.other);
  pair.a.send(pair.b(), Lane::control, 5);
  CHECK(pair.drive([&] { return left < 0 && pair.a.all_sent() && pair.b().all_sent(); }));
  if (!pair.other) return;
  check_delivery(pair.a, *pair.other, setup.bulk_ordered);
  check_delivery(*pair.other, pair.a, setup.bulk_ordered);
}

inline void cancel_before_anything_left(const Setup &setup) {
  Pair pair(setup);
  Endpoint &to = pair.a.transport->endpoint(pair.b().self);
  Message &first = pair.a.send(to, Lane::control, 10);
  Message &second = pair.a.send(to, Lane::control, 10);
  Message &third = pair.a.send(to, Lane::bulk, 10);
  pair.a.send(to, Lane::control, 10);
  CHECK(pair.a.cancel(to, second));
  CHECK(pair.a.cancel(to, first));
  CHECK(pair.a.cancel(to, third));
  pair.a.send(to, Lane::control, 10);
  pair.a.send(to, Lane::bulk, 10);
  CHECK(pair.drive([&] { return pair.b().complete() == 3; }));
  check_delivery(pair.a, pair.b(), setup.bulk_ordered);
}

inline void cancel_under_way(const Setup &setup) {
  if (!has_peers(setup)) return;
  Pair pair(setup);
  Endpoint &to = pair.a.transport->endpoint(pair.b().self);
  pair.a.send(to, Lane::control, 1);
  REQUIRE(pair.drive([&] { return pair.b().complete() == 1; }));
  const size_t size = pair.a.transport->limits().max_payload;
  // The receiver does not read: the sockets fill, one message is partly written, others wait.
  for (int i = 0; i < 24; ++i) pair.a.send(to, Lane::bulk, size);
  for (int i = 0; i < 50; ++i) pair.a.step();
  int partly = 0, unsent = 0;
  for (Message &message : pair.a.sent) {
    if (message.state != Message::with_transport || message.tag.number % 2 == 0) continue;
    ++(pair.a.cancel(to, message) ? unsent : partly);
  }
  for (Message &message : pair.a.sent)
    if (message.state == Message::with_transport && partly == 0 && !pair.a.cancel(to, message)) ++partly;
  CHECK(partly >= 1);
  CHECK(unsent >= 1);
  pair.a.send(to, Lane::control, 77);
  size_t expected = 0;
  for (const Message &message : pair.a.sent) expected += message.state != Message::canceled;
  CHECK(pair.drive([&] { return pair.b().complete() == expected && pair.a.all_sent(); }));
  check_delivery(pair.a, pair.b(), setup.bulk_ordered);
}

inline void discarded_payload(const Setup &setup) {
  Pair pair(setup);
  pair.b().discard = true;
  pair.a.send(pair.b(), Lane::control, 200000);
  CHECK(pair.drive([&] { return pair.b().complete() == 1; }));
  pair.b().discard = false;
  pair.a.send(pair.b(), Lane::control, 200000);
  CHECK(pair.drive([&] { return pair.b().complete() == 2; }));
  CHECK(pair.b().arrived.front().payload == std::vector<std::byte>(200000));
  CHECK(pair.b().arrived.back().payload == pattern(2, 200000));
}

inline void refused_message(const Setup &setup) {
  Pair pair(setup);
  pair.b().refuse = true;
  pair.a.send(pair.b(), Lane::control, 10);
  REQUIRE(pair.drive([&] { return !pair.b().failed.empty(); }));
  CHECK(pair.b().failed.size() == 1);
  CHECK(pair.b().failed[0].why.code() == DICOMM_PROTOCOL);
  CHECK(pair.b().failed[0].why.failure()->path == pair.a.transport->name());
  CHECK_FALSE(pair.b().failed[0].clean);
  if (!pair.other) return;
  REQUIRE(pair.drive([&] { return !pair.a.failed.empty(); }));
  CHECK(pair.a.failed[0].why.code() == DICOMM_PEER_LOST);
}

inline void crossing_connects(const Setup &setup) {
  if (!has_peers(setup)) return;
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    Pair pair(setup);
    Party &a = pair.a, &b = *pair.other;
    // Every interleaving the two can be driven into, by chance.
    a.send(b, Lane::control, 100);
    for (unsigned i = random() % 4; i > 0; --i) a.step();
    b.send(a, Lane::control, 100);
    a.send(b, Lane::bulk, 70000);
    b.send(a, Lane::bulk, 70000);
    for (int i = 0; i < 40; ++i) (random() % 2 == 0 ? a : b).step();
    a.send(b, Lane::control, 0);
    b.send(a, Lane::control, 0);
    REQUIRE(
        pair.drive([&] { return a.complete() == 3 && b.complete() == 3 && a.all_sent() && b.all_sent(); }));
    for (const Arrival &arrival : a.arrived) REQUIRE(arrival.from == &a.transport->endpoint(b.self));
    check_delivery(a, b, setup.bulk_ordered);
    check_delivery(b, a, setup.bulk_ordered);
    REQUIRE(a.failed.empty());
    REQUIRE(b.failed.empty());
  }
}

inline void peer_vanishes(const Setup &setup) {
  if (!has_peers(setup)) return;
  Pair pair(setup);
  Party &a = pair.a, &b = *pair.other;
  a.send(b, Lane::control, 1);
  REQUIRE(pair.drive([&] { return b.complete() == 1; }));
  const size_t size = a.transport->limits().max_payload;
  for (int i = 0; i < 24; ++i) a.send(b, Lane::bulk, size);
  b.send(a, Lane::control, 1);
  REQUIRE(pair.drive([&] { return b.arrived.size() > 2; }));
  a.transport.reset();
  const Nanos start = now();
  REQUIRE(drive({&b}, [&] { return !b.failed.empty(); }));
  CHECK(now() - start < kSecond);
  for (int i = 0; i < 20; ++i) b.step();
  CHECK(b.failed.size() == 1);
  CHECK(b.failed[0].why.code() == DICOMM_PEER_LOST);
  CHECK(b.failed[0].why.failure()->peer_host == "host1");
  CHECK_FALSE(b.failed[0].clean);
  for (const Arrival &arrival : b.arrived)
    if (arrival.complete) CHECK(is_pattern(arrival.payload, arrival.tag.number));
}

inline void goodbye_is_clean(const Setup &setup) {
  Pair pair(setup);
  Party &a = pair.a;
  for (int i = 0; i < 30; ++i)
    a.send(pair.b(), i % 3 == 0 ? Lane::bulk : Lane::control, i % 3 == 0 ? 500000 : 50);
  CHECK(pair.drive([&] { return a.transport->shutdown(); }));
  if (pair.other) CHECK(drive({pair.other.get()}, [&] { return !pair.other->failed.empty(); }));
  CHECK(pair.b().complete() == 30);
  CHECK(a.all_sent());
  check_delivery(a, pair.b(), setup.bulk_ordered);
  for (Party *party : pair.both())
    for (const Failed &failed : party->failed) CHECK(failed.clean);
  if (!pair.other) return;
  CHECK(pair.other->failed.size() == 1);
  CHECK(pair.other->transport->shutdown());
}

inline void both_leave_at_once(const Setup &setup) {
  if (!has_peers(setup)) return;
  Pair pair(setup);
  Party &a = pair.a, &b = *pair.other;
  a.send(b, Lane::control, 1);
  REQUIRE(pair.drive([&] { return b.complete() == 1; }));
  for (int i = 0; i < 20; ++i) {
    a.send(b, i % 2 == 0 ? Lane::bulk : Lane::control, 400000);
    b.send(a, i % 2 == 0 ? Lane::bulk : Lane::control, 400000);
  }
  CHECK(pair.drive([&] {
    const bool a_over = a.transport->shutdown(), b_over = b.transport->shutdown();
    return a_over && b_over;
  }));
  CHECK(b.complete() == 21);
  CHECK(a.complete() == 20);
  check_delivery(a, b, setup.bulk_ordered);
  check_delivery(b, a, setup.bulk_ordered);
  for (Party *party : pair.both())
    for (const Failed &failed : party->failed) CHECK(failed.clean);
}

inline void leave_and_come_back(const Setup &setup) {
  if (!has_peers(setup)) return;
  Pair pair(setup);
  Party &a = pair.a, &b = *pair.other;
  b.send(a, Lane::control, 1);
  REQUIRE(pair.drive([&] { return a.complete() == 1; }));
  b.transport.reset();
  b.transport = setup.make(b.reactor, b, b.self);
  b.self.address = b.transport->address();
  REQUIRE(pair.drive([&] { return !a.failed.empty(); }));
  a.send(b, Lane::control, 2);
  CHECK(pair.drive([&] { return b.complete() == 1; }));
}

// What one side writes into memory that it has handed over, the other reads; or the endpoint says that it
// hands nothing over.
inline void descriptors(const Setup &setup) {
  if (!has_peers(setup)) return;
  Pair pair(setup);
  Party &a = pair.a, &b = *pair.other;
  Endpoint &to = a.transport->endpoint(b.self);
  SharedMemory memory;
  REQUIRE(memory.create(4096).ok());
  const dicomm_status early = to.hand_over(memory.fd()).code();
  CHECK((early == DICOMM_CONNECT_FAILED || early == DICOMM_NOT_SUPPORTED));
  a.send(b, Lane::control, 1);
  REQUIRE(pair.drive([&] { return b.complete() == 1; }));
  Endpoint &from = *b.arrived.front().from;
  CHECK_FALSE(from.take_handed().valid());
  const Status handed = to.hand_over(memory.fd());
  if (handed.code() == DICOMM_NOT_SUPPORTED) return;
  REQUIRE(handed.ok());
  SharedMemory second;
  REQUIRE(second.create(8192).ok());
  REQUIRE(to.hand_over(second.fd()).ok());
  a.send(b, Lane::control, 1);
  REQUIRE(pair.drive([&] { return b.complete() == 2; }));
  SharedMemory first_there, second_there;
  REQUIRE(first_there.adopt(from.take_handed(), 4096).ok());
  CHECK(second_there.adopt(from.take_handed(), 4096).code() == DICOMM_PROTOCOL);
  CHECK_FALSE(from.take_handed().valid());
  memory.data()[7] = std::byte{42};
  CHECK(first_there.data()[7] == std::byte{42});
}

inline void forked_child(const Setup &setup) {
  Pair pair(setup);
  pair.a.send(pair.b(), Lane::control, 1);
  REQUIRE(pair.drive([&] { return pair.b().complete() == 1; }));
  const pid_t child = ::fork();
  if (child == 0) {
    for (Party *party : pair.both()) {
      party->transport->after_fork();
      party->reactor.after_fork();
      party->transport.reset();
    }
    ::_exit(0);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  pair.a.send(pair.b(), Lane::control, 100000);
  CHECK(pair.drive([&] { return pair.b().complete() == 2; }));
  CHECK(pair.a.failed.empty());
  check_delivery(pair.a, pair.b(), setup.bulk_ordered);
}

}  // namespace dicomm::suite

#define DICOMM_TRANSPORT_CASE(name, scenario, ...)    \
  TEST_CASE("transport " name ": " #scenario) {       \
    const ::dicomm::suite::Setup setup = __VA_ARGS__; \
    if (setup.absent.empty())                         \
      ::dicomm::suite::scenario(setup);               \
    else                                              \
      MESSAGE("skipped: ", setup.absent);             \
  }

#define DICOMM_TRANSPORT_SUITE(name, ...)                               \
  DICOMM_TRANSPORT_CASE(name, sizes_and_order, __VA_ARGS__)             \
  DICOMM_TRANSPORT_CASE(name, both_ways, __VA_ARGS__)                   \
  DICOMM_TRANSPORT_CASE(name, cancel_before_anything_left, __VA_ARGS__) \
  DICOMM_TRANSPORT_CASE(name, cancel_under_way, __VA_ARGS__)            \
  DICOMM_TRANSPORT_CASE(name, discarded_payload, __VA_ARGS__)           \
  DICOMM_TRANSPORT_CASE(name, refused_message, __VA_ARGS__)             \
  DICOMM_TRANSPORT_CASE(name, crossing_connects, __VA_ARGS__)           \
  DICOMM_TRANSPORT_CASE(name, peer_vanishes, __VA_ARGS__)               \
  DICOMM_TRANSPORT_CASE(name, goodbye_is_clean, __VA_ARGS__)            \
  DICOMM_TRANSPORT_CASE(name, descriptors, __VA_ARGS__)                 \
  DICOMM_TRANSPORT_CASE(name, both_leave_at_once, __VA_ARGS__)          \
  DICOMM_TRANSPORT_CASE(name, leave_and_come_back, __VA_ARGS__)         \
  DICOMM_TRANSPORT_CASE(name, forked_child, __VA_ARGS__)
