#include "coll/shards.h"

namespace dicomm::coll {

// Ranks are numbered from the root, v = rank - root; v's parent clears v's lowest set bit. A rank with
// children adds theirs to its own, nearest first; a rank without sends its input as it is.
Schedule reduce_binomial(const Problem &problem, const Topology &) {
  Schedule schedule;
  const int size = problem.size;
  const int v = wrap(problem.rank - problem.root, size);
  const auto rank_of = [&](int w) { return wrap(w + problem.root, size); };
  const auto is_leaf = [&](int w) { return w % 2 == 1 || w + 1 >= size; };
  const Span input{Space::input, 0, problem.count};
  const Span output{Space::output, 0, problem.count};
  const auto scratch = [&](Space space) {
    uint64_t &used = space == Space::acc ? schedule.acc_count : schedule.stage_count;
    used += problem.count;
    return Span{space, used - problem.count, problem.count};
  };

  std::vector<Span> operands = {input};
  std::vector<uint32_t> ready = {Schedule::kNone};
  int mask = 1;
  for (; mask < size && (v & mask) == 0; mask *= 2) {
    if (v + mask >= size) continue;
    operands.push_back(scratch(is_leaf(v + mask) ? Space::stage : Space::acc));
    ready.push_back(schedule.recv(rank_of(v + mask), operands.back()));
  }
  if (v == 0) {
    const Span partial = operands.size() > 2 ? scratch(Space::acc) : Span{};
    reduce_in_order(schedule, output, partial, operands, ready, {});
    return schedule;
  }
  Span mine = input;
  uint32_t last = Schedule::kNone;
  if (operands.size() > 1) mine = scratch(Space::acc);
  for (size_t i = 1; i < operands.size(); ++i) {
    last = schedule.reduce(mine, i == 1 ? input : mine, operands[i], false, {last, ready[i]});
  }
  schedule.send(rank_of(v - mask), mine, {last});
  return schedule;
}

Schedule reduce_direct(const Problem &problem, const Topology &) {
  Schedule schedule;
  const int rank = problem.rank;
  const int root = problem.root;
  const Blocks shards(problem.count, problem.size);
  Span result = shards.in(Space::output, rank);
  if (rank != root) {  // other ranks have no output: the finished shard waits in stage
    result = {Space::stage, 0, shards.count(rank)};
    schedule.stage_count = shards.count(rank);
  }
  const ReducedShards own = reduce_shards_direct(schedule, problem, shards, result);
  for (int c = 0; c < own.chunks; ++c) {
    if (rank != root) {
      const Blocks pieces(shards.count(rank), own.chunks);
      schedule.send(root, part(result, pieces.offset(c), pieces.count(c)),
                    {own.finished[static_cast<size_t>(c)]});
      continue;
    }
    for (int i = 1; i < problem.size; ++i) {
      const int from = wrap(rank - i, problem.size);
      const Blocks pieces(shards.count(from), own.chunks);
      schedule.recv(from, part(shards.in(Space::output, from), pieces.offset(c), pieces.count(c)),
                    {own.input_read[static_cast<size_t>(from * own.chunks + c)]});
    }
  }
  return schedule;
}

}  // namespace dicomm::coll
