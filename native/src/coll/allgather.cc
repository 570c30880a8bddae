#include "coll/team.h"

namespace dicomm::coll {

// Blocks gather in stage in the order rank, rank + 1, ..., and move to their places at the end.
Schedule allgather_bruck(const Problem &problem, const Topology &) {
  Schedule schedule;
  const int rank = problem.rank;
  const int size = problem.size;
  const Team team = everybody(problem);
  const Blocks places(problem.counts);
  std::vector<uint64_t> rotated;
  for (int i = 0; i < size; ++i) rotated.push_back(places.count(wrap(rank + i, size)));
  const Blocks held(rotated);
  schedule.scratch(Space::stage) = held.total();

  const Span own{Space::input, 0, held.count(0)};
  const auto here = bruck(schedule, team, held, {schedule.copy(held.in(Space::stage, 0), own, false)});
  const int tail = size - rank;  // blocks before the order wraps round to rank 0
  schedule.copy({Space::output, places.offset(rank), held.range(0, tail)},
                {Space::stage, 0, held.range(0, tail)}, false, here);
  schedule.copy({Space::output, 0, held.range(tail, rank)},
                {Space::stage, held.offset(tail), held.range(tail, rank)}, false, here);
  return schedule;
}

Schedule allgather_direct(const Problem &problem, const Topology &) {
  Schedule schedule;
  const int rank = problem.rank;
  const int size = problem.size;
  const Blocks blocks(problem.counts);
  const Span own{Space::input, 0, blocks.count(rank)};
  for (int i = 1; i < size; ++i) {
    const int from = wrap(rank - i, size);
    schedule.recv(from, blocks.in(Space::output, from));
    schedule.send(wrap(rank + i, size), own);
  }
  schedule.copy(blocks.in(Space::output, rank), own, false);
  return schedule;
}

Schedule allgather_ring(const Problem &problem, const Topology &) {
  Schedule schedule;
  const int rank = problem.rank;
  const int size = problem.size;
  const Blocks blocks(problem.counts);
  const Span own{Space::input, 0, blocks.count(rank)};
  const int chunks = chunk_count(blocks.largest(), problem.element, kMostChunks);
  schedule.copy(blocks.in(Space::output, rank), own, false);
  std::vector<uint32_t> here(static_cast<size_t>(chunks), Schedule::kNone);
  for (int t = 0; t + 1 < size; ++t) {
    const int sent = wrap(rank - t, size);
    const int received = wrap(rank - 1 - t, size);
    const Blocks send_pieces(blocks.count(sent), chunks);
    const Blocks recv_pieces(blocks.count(received), chunks);
    const Span from = t == 0 ? own : blocks.in(Space::output, sent);
    for (int c = 0; c < chunks; ++c) {
      uint32_t &step = here[static_cast<size_t>(c)];
      schedule.send(wrap(rank + 1, size), part(from, send_pieces.offset(c), send_pieces.count(c)), {step});
      step = schedule.recv(wrap(rank - 1, size), part(blocks.in(Space::output, received),
                                                      recv_pieces.offset(c), recv_pieces.count(c)));
    }
  }
  return schedule;
}

}  // namespace dicomm::coll
