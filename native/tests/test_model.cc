// The virtual clock (model/) against times computed by hand, and every algorithm against the bound.
#include <doctest/doctest.h>

#include <string>

#include "layouts.h"
#include "model/bound.h"
#include "model/simulate.h"

using namespace dicomm;
using model::Machine;
using model::Picoseconds;
using model::Prediction;

namespace {

constexpr Picoseconds kMicro = 1'000'000;

// Round numbers: a byte takes a nanosecond everywhere.
Machine plain() {
  Machine machine;
  machine.local_latency = 1e-6;
  machine.remote_latency = 10e-6;
  machine.overhead = 0.5e-6;
  machine.local_bandwidth = machine.remote_bandwidth = machine.nic_bandwidth = 1e9;
  machine.copy_bandwidth = machine.reduce_bandwidth = 1e9;
  machine.eager_bytes = UINT64_MAX;
  return machine;
}

std::vector<Problem> problems(dicomm_opcode op, int size, uint64_t count, bool widened = false) {
  std::vector<Problem> out;
  for (int rank = 0; rank < size; ++rank) {
    Problem p;
    p.op = op;
    p.rank = rank;
    p.size = size;
    p.widened = widened;
    p.count = count;
    p.counts.assign(static_cast<size_t>(size), count);
    p.recv_counts = p.counts;
    out.push_back(p);
  }
  return out;
}

Prediction run(const Algorithm &algorithm, const std::vector<Problem> &ranks, const Topology &topology,
               const Machine &machine) {
  Prediction made;
  const Status status = model::simulate(algorithm, ranks, topology, machine, made);
  CAPTURE(algorithm.name);
  REQUIRE(status.message() == Status().message());
  return made;
}

Prediction run(dicomm_opcode op, const char *name, int size, uint64_t count, const Topology &topology,
               const Machine &machine) {
  return run(*find_algorithm(op, name), problems(op, size, count), topology, machine);
}

Algorithm hand_made(Schedule (*build)(const Problem &, const Topology &)) {
  return {DICOMM_BARRIER, "hand-made", "", [](const Problem &) { return true; }, build};
}

constexpr Span kThousand{Space::input, 0, 1000};
constexpr Span kPlace{Space::output, 0, 1000};

// Ranks 0 .. size - 2 send a thousand bytes each to the last one.
Schedule to_the_last(const Problem &p, const Topology &) {
  Schedule schedule;
  const int last = p.size - 1;
  if (p.rank != last) schedule.send(last, kThousand);
  for (int i = 0; p.rank == last && i < last; ++i) schedule.recv(i, kPlace);
  return schedule;
}

// The receiver first copies ten thousand bytes.
Schedule to_a_late_one(const Problem &p, const Topology &) {
  Schedule schedule;
  if (p.rank == 0) {
    schedule.send(1, kThousand);
  } else {
    const uint32_t copied = schedule.copy({Space::output, 0, 10000}, {Space::input, 0, 10000}, false);
    schedule.recv(0, kPlace, {copied});
  }
  return schedule;
}

Schedule circular(const Problem &p, const Topology &) {
  Schedule schedule;
  const uint32_t arrived = schedule.recv(1 - p.rank, kPlace);
  schedule.send(1 - p.rank, kThousand, {arrived});
  return schedule;
}

Schedule never_received(const Problem &p, const Topology &) {
  Schedule schedule;
  if (p.rank == 0) schedule.send(1, kThousand);
  return schedule;
}

Schedule never_sent(const Problem &p, const Topology &) {
  Schedule schedule;
  if (p.rank == 0) schedule.recv(1, kPlace);
  return schedule;
}

Schedule endless(const Problem &, const Topology &) {
  Schedule schedule;
  for (int i = 0; i < 250'000; ++i) schedule.copy(kPlace, kThousand, false);
  return schedule;
}

Status failure(Schedule (*build)(const Problem &, const Topology &), int size) {
  Prediction made;
  return model::simulate(hand_made(build), problems(DICOMM_BARRIER, size, 0), flat_topology(size), plain(),
                         made);
}

}  // namespace

TEST_CASE("a lone message takes overhead, latency, its bytes and overhead") {
  const Algorithm algorithm = hand_made(to_the_last);
  const auto ranks = problems(DICOMM_BARRIER, 2, 0);
  Machine machine = plain();
  CHECK(run(algorithm, ranks, flat_topology(2), machine).time == 3 * kMicro);
  CHECK(run(algorithm, ranks, layout({1, 1}), machine).time == 12 * kMicro);
  machine.nic_bandwidth = 0.5e9;
  CHECK(run(algorithm, ranks, flat_topology(2), machine).time == 3 * kMicro);
  CHECK(run(algorithm, ranks, layout({1, 1}), machine).time == 13 * kMicro);
  machine.eager_bytes = 999;  // asks, is answered: two latencies more
  CHECK(run(algorithm, ranks, flat_topology(2), machine).time == 5 * kMicro);
}

TEST_CASE("a message waits for its receiver, a long one at the sender") {
  const Algorithm algorithm = hand_made(to_a_late_one);
  const auto ranks = problems(DICOMM_BARRIER, 2, 0);
  Machine machine = plain();
  const Prediction eager = run(algorithm, ranks, flat_topology(2), machine);
  CHECK(eager.time == 10 * kMicro);
  CHECK(eager.path.messages == 0);
  CHECK(eager.path.arithmetic == 10 * kMicro);
  machine.eager_bytes = 0;
  const Prediction asks = run(algorithm, ranks, flat_topology(2), machine);
  CHECK(asks.time == 14 * kMicro);  // 10, one latency for the answer, 3 for the message
  CHECK(asks.path.messages == 1);
  CHECK(asks.path.latency == 3 * kMicro);
  CHECK(asks.path.transfer == 1 * kMicro);
  CHECK(asks.path.waiting == 0);
}

TEST_CASE("a rank takes one message at a time") {
  const auto ranks = problems(DICOMM_BARRIER, 4, 0);
  const Prediction made = run(hand_made(to_the_last), ranks, flat_topology(4), plain());
  // All three arrive after overhead and latency; each then takes an overhead and a microsecond of bytes.
  CHECK(made.time == 6 * kMicro);
  CHECK(made.path.waiting == 3 * kMicro);
  CHECK(made.messages == 3);
  CHECK(made.steps == 6);
}

// Two ranks of host 0 send to one rank each of host 1.
Schedule side_by_side(const Problem &p, const Topology &) {
  Schedule schedule;
  if (p.rank < 2) schedule.send(p.rank + 2, kThousand);
  if (p.rank >= 2) schedule.recv(p.rank - 2, kPlace);
  return schedule;
}

TEST_CASE("the ranks of a host share its NIC") {
  const Algorithm algorithm = hand_made(side_by_side);
  const auto ranks = problems(DICOMM_BARRIER, 4, 0);
  Machine machine = plain();
  CHECK(run(algorithm, ranks, flat_topology(4), machine).time == 3 * kMicro);
  const Prediction shared = run(algorithm, ranks, layout({2, 2}), machine);
  CHECK(shared.time == 13 * kMicro);  // twice the bytes through one NIC
  CHECK(shared.path.waiting == 1 * kMicro);
  CHECK(shared.path.remote_messages == 1);
  CHECK(shared.hosts[0].sent == 2000);
  CHECK(shared.hosts[0].received == 0);
  CHECK(shared.hosts[1].received == 2000);
  CHECK(shared.hosts[1].ranks == 2);
  CHECK(run(algorithm, ranks, layout({2, 1, 1}), machine).time == 13 * kMicro);  // host 0's way out
  CHECK(run(algorithm, ranks, layout({1, 1, 2}), machine).time == 13 * kMicro);  // host 2's way in
  CHECK(run(algorithm, ranks, layout({1, 1, 1, 1}), machine).time == 12 * kMicro);
  machine.nic_bandwidth = 2e9;  // as much as both ranks can send
  CHECK(run(algorithm, ranks, layout({2, 2}), machine).time == 12 * kMicro);
}

TEST_CASE("rings take their rounds") {
  const Picoseconds round = 2 * kMicro + 500'000;  // 2 overheads, latency, 500 bytes
  const Prediction gathered = run(DICOMM_ALLGATHER, "ring", 4, 500, flat_topology(4), plain());
  CHECK(gathered.time == 3 * round);
  CHECK(gathered.path.messages == 3);
  CHECK(gathered.messages == 12);
  const Prediction reduced = run(DICOMM_ALLREDUCE, "ring", 4, 2000, flat_topology(4), plain());
  CHECK(reduced.time == 6 * round + 3 * 500'000);
  CHECK(reduced.path.messages == 6);
  CHECK(reduced.path.computations == 3);
  CHECK(reduced.path.latency == 12 * kMicro);
  CHECK(reduced.path.transfer == 3 * kMicro);
  CHECK(reduced.path.arithmetic == 3 * 500'000);
  CHECK(reduced.path.waiting == 0);
  // Between two hosts of two ranks, 2 (n - 1) / n of the buffer leaves each host.
  const Prediction across = run(DICOMM_ALLREDUCE, "ring", 4, 2000, layout({2, 2}), plain());
  for (const model::HostTraffic &host : across.hosts) {
    CHECK(host.sent == 3000);
    CHECK(host.received == 3000);
  }
}

TEST_CASE("partial results of a widened dtype travel in float32") {
  const auto narrow = problems(DICOMM_ALLREDUCE, 4, 2000);
  const auto wide = problems(DICOMM_ALLREDUCE, 4, 2000, true);
  const Algorithm &ring = *find_algorithm(DICOMM_ALLREDUCE, "ring");
  const uint64_t sent = run(ring, narrow, layout({2, 2}), plain()).hosts[0].sent;
  // The first round moves raw inputs, two rounds partial results of four bytes, three finished ones.
  CHECK(sent == 6 * 500);
  CHECK(run(ring, wide, layout({2, 2}), plain()).hosts[0].sent == (1 + 2 * 4 + 3) * 500);
}

TEST_CASE("one rank alone copies") {
  CHECK(run(DICOMM_ALLREDUCE, "ring", 1, 2000, flat_topology(1), plain()).time == 2 * kMicro);
  CHECK(run(DICOMM_BARRIER, "tree", 1, 0, flat_topology(1), plain()).time == 0);
  CHECK(model::lower_bound(problems(DICOMM_ALLREDUCE, 1, 9), flat_topology(1), plain()).time == 0);
}

TEST_CASE("schedules that do not fit one another are errors") {
  CHECK(failure(circular, 2).code() == DICOMM_INTERNAL);
  CHECK(failure(never_received, 2).code() == DICOMM_INTERNAL);
  CHECK(failure(never_sent, 2).code() == DICOMM_INTERNAL);
  CHECK(failure(to_the_last, 2).code() == DICOMM_OK);
}

TEST_CASE("what is too large or too slow is refused") {
  CHECK(failure(endless, 100).code() == DICOMM_NOT_SUPPORTED);
  Prediction made;
  Machine machine = plain();
  const auto ranks = problems(DICOMM_ALLREDUCE, 2, uint64_t{1} << 40);
  const Algorithm &ring = *find_algorithm(DICOMM_ALLREDUCE, "ring");
  machine.nic_bandwidth = 1;
  CHECK(model::simulate(ring, ranks, flat_topology(2), machine, made).code() == DICOMM_NOT_SUPPORTED);
  machine.nic_bandwidth = 0;
  CHECK(model::simulate(ring, ranks, flat_topology(2), machine, made).code() == DICOMM_INVALID_ARGUMENT);
  machine = plain();
  machine.overhead = -1;
  CHECK(model::simulate(ring, ranks, flat_topology(2), machine, made).code() == DICOMM_INVALID_ARGUMENT);
}

TEST_CASE("the bound is the slowest thing that every schedule must do") {
  const auto bound = [](dicomm_opcode op, int size, uint64_t count, const Topology &topology,
                        Machine machine = plain()) {
    return model::lower_bound(problems(op, size, count), topology, machine).time;
  };
  // The first word arrives after 2 us; its sender sends another one every 0.5 us.
  CHECK(bound(DICOMM_BARRIER, 2, 0, flat_topology(2)) == 2 * kMicro);
  CHECK(bound(DICOMM_BARRIER, 3, 0, flat_topology(3)) == 2'500'000);
  CHECK(bound(DICOMM_BARRIER, 4, 0, flat_topology(4)) == 3 * kMicro);
  CHECK(bound(DICOMM_BARRIER, 3, 0, layout({2, 1})) == 11 * kMicro);
  // A rank sends 2 * 3 / 4 of the buffer; the first byte has arrived 2 us after the start.
  CHECK(bound(DICOMM_ALLREDUCE, 4, 4000, flat_topology(4)) == 8 * kMicro);
  // A NIC of half the ranks' rate: 2 * 1 / 2 of the buffer.
  Machine slow = plain();
  slow.nic_bandwidth = 0.5e9;
  CHECK(bound(DICOMM_ALLREDUCE, 4, 4000, layout({2, 2}), slow) == 19 * kMicro);
  CHECK(bound(DICOMM_ALLREDUCE, 4, 6000, layout({2, 1, 1}), slow) == (16 + 11) * kMicro);
  CHECK(bound(DICOMM_BROADCAST, 4, 4000, layout({2, 2}), slow) == 19 * kMicro);
  // Blocks of 4000: three come into the host of one rank.
  CHECK(bound(DICOMM_ALLGATHER, 4, 4000, layout({3, 1}), slow) == (24 + 11) * kMicro);
  CHECK(bound(DICOMM_REDUCE_SCATTER, 4, 4000, layout({3, 1}), slow) == (24 + 11) * kMicro);
  // Root 0's host gets one block, the others' host gives one.
  CHECK(bound(DICOMM_GATHER, 4, 4000, layout({3, 1}), slow) == (8 + 11) * kMicro);
  CHECK(bound(DICOMM_ALLTOALL, 4, 4000, layout({3, 1}), slow) == (24 + 11) * kMicro);
  Machine weak = plain();
  weak.reduce_bandwidth = 0.1e9;
  CHECK(bound(DICOMM_REDUCE, 4, 4000, flat_topology(4), weak) == 30 * kMicro);
}

TEST_CASE("no algorithm beats the bound, and the same question has the same answer") {
  // Reducers are the last ranks; algorithms that know none have peers.
  const auto with_reducers = [](Topology topology, int reducers) {
    for (int i = 1; i <= reducers; ++i) topology.ranks.at(topology.ranks.size() - i).chip.role = "reducer";
    return topology;
  };
  for (const Algorithm &algorithm : algorithms()) {
    for (const Topology &topology :
         {layout({1, 1}), flat_topology(5), layout({3, 1}), layout({1, 1, 5}), layout({8, 8}),
          interleaved({5, 4, 3}), layout({4, 4, 4, 4, 1}), with_reducers(flat_topology(5), 2),
          with_reducers(layout({2, 2, 1}), 1), with_reducers(layout({1, 1, 1, 1, 1}), 2),
          with_reducers(layout({3, 2, 2}), 3)}) {
      for (uint64_t count : {uint64_t{1}, uint64_t{3000}, uint64_t{1} << 20}) {
        for (bool asks : {false, true}) {
          CAPTURE(algorithm.name);
          CAPTURE(topology.size());
          CAPTURE(count);
          Machine machine = plain();
          if (asks) machine.eager_bytes = 64 << 10;
          auto ranks = problems(algorithm.op, topology.size(), count);
          for (Problem &p : ranks) {
            const bool helps = topology.ranks[static_cast<size_t>(p.rank)].helps();
            const bool helped = p.op == DICOMM_ALLREDUCE || p.op == DICOMM_REDUCE;
            if (helped && topology.ranks.back().helps())
              p.role = helps ? Problem::Role::reducer : Problem::Role::worker;
          }
          if (!algorithm.fits(ranks[0])) continue;
          const Prediction made = run(algorithm, ranks, topology, machine);
          const model::Bound bound = model::lower_bound(ranks, topology, machine);
          CAPTURE(bound.reason);
          CHECK(bound.time > 0);
          CHECK(static_cast<double>(made.time) >= static_cast<double>(bound.time) * 0.999999);
          const model::CriticalPath &path = made.path;
          CHECK(path.latency + path.transfer + path.arithmetic + path.waiting == made.time);
          CHECK(path.waiting >= 0);
          uint64_t sent = 0, received = 0;
          for (const model::HostTraffic &host : made.hosts) {
            sent += host.sent;
            received += host.received;
          }
          CHECK(sent == received);
          const Prediction again = run(algorithm, ranks, topology, machine);
          CHECK(again.time == made.time);
          CHECK(again.path.waiting == path.waiting);
        }
      }
    }
  }
}

TEST_CASE("the clock of 1024 ranks") {
  const Prediction flat = run(DICOMM_ALLGATHER, "ring", 1024, 500, flat_topology(1024), plain());
  CHECK(flat.time == 1023 * (2 * kMicro + 500'000));
  CHECK(flat.messages == 1023 * 1024);
  CHECK(flat.path.messages == 1023);
  const Topology topology = uneven_1024();
  const Prediction apart = run(DICOMM_ALLGATHER, "ring", 1024, 500, topology, plain());
  CHECK(apart.hosts.size() == static_cast<size_t>(topology.hosts()));
  for (const model::HostTraffic &host : apart.hosts) {  // all blocks but one pass every link
    CHECK(host.sent == 1023 * 500);
    CHECK(host.received == 1023 * 500);
  }
  CHECK(apart.time >= model::lower_bound(problems(DICOMM_ALLGATHER, 1024, 500), topology, plain()).time);
}
