#include "coll/team.h"

namespace dicomm::coll {

namespace {

Span whole(const Problem &problem) { return {Space::output, 0, problem.count}; }

}  // namespace

Schedule broadcast_direct(const Problem &problem, const Topology &) {
  Schedule schedule;
  if (problem.rank != problem.root) schedule.recv(problem.root, whole(problem));
  for (int i = 1; i < problem.size && problem.rank == problem.root; ++i)
    schedule.send(wrap(problem.root + i, problem.size), whole(problem));
  return schedule;
}

Schedule broadcast_binomial(const Problem &problem, const Topology &) {
  Schedule schedule;
  tree_broadcast(schedule, everybody(problem, problem.root), whole(problem), {});
  return schedule;
}

Schedule broadcast_chain(const Problem &problem, const Topology &) {
  Schedule schedule;
  const int v = wrap(problem.rank - problem.root, problem.size);
  const Blocks chunks(problem.count, chunk_count(problem.count, problem.element, 4 * kMostChunks));
  for (int c = 0; c < chunks.size(); ++c) {
    uint32_t here = Schedule::kNone;
    if (v > 0) here = schedule.recv(wrap(problem.rank - 1, problem.size), chunks.in(Space::output, c));
    if (v + 1 < problem.size) {
      schedule.send(wrap(problem.rank + 1, problem.size), chunks.in(Space::output, c), {here});
    }
  }
  return schedule;
}

Schedule broadcast_scatter_allgather(const Problem &problem, const Topology &) {
  Schedule schedule;
  const int rank = problem.rank;
  const int size = problem.size;
  const Blocks shards(problem.count, size);
  const auto shard = [&](int owner) { return shards.in(Space::output, owner); };
  if (rank == problem.root) {
    for (int i = 1; i < size; ++i) schedule.send(wrap(rank + i, size), shard(wrap(rank + i, size)));
    // The root's own shard goes to everybody, as the others' do.
    for (int i = 1; i < size; ++i) schedule.send(wrap(rank + i, size), shard(rank));
    return schedule;
  }
  const uint32_t mine = schedule.recv(problem.root, shard(rank));
  schedule.recv(problem.root, shard(problem.root));
  for (int i = 1; i < size; ++i) {
    const int from = wrap(rank - i, size);
    const int to = wrap(rank + i, size);
    if (from != problem.root) schedule.recv(from, shard(from));
    if (to != problem.root) schedule.send(to, shard(rank), {mine});
  }
  return schedule;
}

}  // namespace dicomm::coll
