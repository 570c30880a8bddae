// Allreduce. Every rank must end with the same bits, so a result is either computed once and copied, or
// computed on each rank from the same operands in the same order.
#include "coll/shards.h"

namespace dicomm::coll {

namespace {

constexpr auto kNone = Schedule::kNone;

}  // namespace

Schedule allreduce_gather_all(const Problem &problem, const Topology &) {
  Schedule schedule;
  const Span input{Space::input, 0, problem.count};
  const size_t size = static_cast<size_t>(problem.size);
  std::vector<Span> operands(size, input);
  std::vector<uint32_t> ready(size, kNone);
  Schedule::After sent;
  for (int i = 1; i < problem.size; ++i) {
    const int from = wrap(problem.rank - i, problem.size);
    const Span slot{Space::stage, schedule.stage_count, problem.count};
    schedule.stage_count += problem.count;
    operands[static_cast<size_t>(from)] = slot;
    ready[static_cast<size_t>(from)] = schedule.recv(from, slot);
    sent.push_back(schedule.send(wrap(problem.rank + i, problem.size), input));
  }
  const Span partial{Space::acc, 0, problem.count};
  if (problem.size > 2) schedule.acc_count = problem.count;
  reduce_in_order(schedule, {Space::output, 0, problem.count}, partial, operands, ready, sent);
  return schedule;
}

Schedule allreduce_direct(const Problem &problem, const Topology &) {
  Schedule schedule;
  const int rank = problem.rank;
  const int size = problem.size;
  const Blocks shards(problem.count, size);
  const ReducedShards own = reduce_shards_direct(schedule, problem, shards, shards.in(Space::output, rank));
  for (int c = 0; c < own.chunks; ++c) {
    for (int i = 1; i < size; ++i) {
      const int to = wrap(rank + i, size);
      const int from = wrap(rank - i, size);
      const Blocks mine(shards.count(rank), own.chunks);
      const Blocks theirs(shards.count(from), own.chunks);
      schedule.recv(from, part(shards.in(Space::output, from), theirs.offset(c), theirs.count(c)),
                    {own.input_read[static_cast<size_t>(from * own.chunks + c)]});
      schedule.send(to, part(shards.in(Space::output, rank), mine.offset(c), mine.count(c)),
                    {own.finished[static_cast<size_t>(c)]});
    }
  }
  return schedule;
}

Schedule allreduce_ring(const Problem &problem, const Topology &) {
  Schedule schedule;
  const int rank = problem.rank;
  const int size = problem.size;
  const Blocks shards(problem.count, size);
  const ReducedShards own = reduce_shards_ring(schedule, problem, shards, shards.in(Space::output, rank));
  std::vector<uint32_t> here = own.finished;  // what goes on next, per chunk
  for (int t = 0; t + 1 < size; ++t) {
    const int sent = wrap(rank - t, size);
    const int received = wrap(rank - 1 - t, size);
    const Blocks send_pieces(shards.count(sent), own.chunks);
    const Blocks recv_pieces(shards.count(received), own.chunks);
    for (int c = 0; c < own.chunks; ++c) {
      uint32_t &step = here[static_cast<size_t>(c)];
      schedule.send(wrap(rank + 1, size),
                    part(shards.in(Space::output, sent), send_pieces.offset(c), send_pieces.count(c)),
                    {step});
      step =
          schedule.recv(wrap(rank - 1, size),
                        part(shards.in(Space::output, received), recv_pieces.offset(c), recv_pieces.count(c)),
                        {own.input_read[static_cast<size_t>(received * own.chunks + c)]});
    }
  }
  return schedule;
}

// Recursive doubling. When size is not a power of two, the first 2 * extra ranks fold in pairs: the even one
// gives its input to the odd one, takes no part, and gets the result at the end. The others are numbered v =
// 0 .. power - 1 in rank order, so that a partial result always covers consecutive ranks and "lower op
// higher" is the same expression on both partners.
Schedule allreduce_doubling(const Problem &problem, const Topology &) {
  Schedule schedule;
  const int rank = problem.rank;
  const int size = problem.size;
  int power = 1;
  while (power * 2 <= size) power *= 2;
  const int extra = size - power;
  const Span input{Space::input, 0, problem.count};
  const Span output{Space::output, 0, problem.count};
  const auto slot = [&](uint64_t i) { return Span{Space::acc, i * problem.count, problem.count}; };
  const auto rank_of = [&](int v) { return v < extra ? 2 * v + 1 : v + extra; };
  if (size == 1) {
    schedule.copy(output, input, true);
    return schedule;
  }
  const bool folded = rank < 2 * extra;
  if (folded && rank % 2 == 0) {
    const uint32_t sent = schedule.send(rank + 1, input);
    schedule.recv(rank + 1, output, {sent});
    return schedule;
  }

  // Slots 0 and 1 hold this rank's partial results of alternate rounds, 2 and 3 the partners'. A rank that
  // did not fold begins with its input, which travels as it is.
  Span mine = input;
  uint32_t mine_ready = kNone;
  uint32_t input_sent = kNone;
  schedule.stage_count = problem.count;
  schedule.acc_count = power > 2 || extra > 0 ? 4 * problem.count : 0;
  const Span stage{Space::stage, 0, problem.count};
  if (folded) {
    const uint32_t arrived = schedule.recv(rank - 1, stage);
    mine = slot(0);
    mine_ready = schedule.reduce(mine, stage, input, false, {arrived});
  }
  const int v = folded ? rank / 2 : rank - extra;
  uint32_t mine_sent = kNone;                // the send of `mine` in the last round
  uint32_t theirs_used[2] = {kNone, kNone};  // after it slot 2 or 3 is free
  uint32_t stage_used = mine_ready;
  uint64_t round = 0;
  for (int mask = 1; mask < power; mask *= 2, ++round) {
    const int partner = v ^ mask;
    const bool partner_raw = round == 0 && partner >= extra;
    const Span theirs = partner_raw ? stage : slot(2 + round % 2);
    const uint32_t free = partner_raw ? stage_used : theirs_used[round % 2];
    const uint32_t sent = schedule.send(rank_of(partner), mine, {mine_ready});
    if (mine.space == Space::input) input_sent = sent;
    const uint32_t arrived = schedule.recv(rank_of(partner), theirs, {free});
    const bool last = mask * 2 == power;
    const Span dst = last ? output : slot((round + 1) % 2);
    // dst was last sent in the round before; output may be the memory of input.
    const uint32_t dst_free = last ? input_sent : mine_sent;
    const Span a = v < partner ? mine : theirs;
    const Span b = v < partner ? theirs : mine;
    mine_ready = schedule.reduce(dst, a, b, last, {mine_ready, arrived, dst_free});
    theirs_used[round % 2] = mine_ready;
    mine_sent = sent;
    mine = dst;
  }
  if (folded) schedule.send(rank - 1, output, {mine_ready});
  return schedule;
}

}  // namespace dicomm::coll
