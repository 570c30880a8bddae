// Broadcast and allgather on two levels: to one driver per group, and from there to its group.
#include "coll/crossing.h"
#include "coll/inside.h"

namespace dicomm::coll {

// A block goes from its rank to the members of its own group and to a driver in each other one.
Schedule allgather_two_level(const Problem &problem, const Topology &topology) {
  Schedule schedule;
  const int me = problem.rank;
  const Groups groups = hosts_of(topology);
  const int group = groups.of(me);
  const Pieces pieces = cut_blocks(groups, problem.counts, problem.element);
  Inside inside(schedule, groups, me, pieces.largest);
  Crossing crossing(schedule, problem, groups, pieces.largest);
  const uint64_t own = Blocks(problem.counts).offset(me);
  for (const Piece &piece : pieces.list) {
    const Span output{Space::output, piece.offset, piece.count};
    const Span source = me == piece.rank ? Span{Space::input, piece.offset - own, piece.count} : output;
    const uint32_t here = crossing.spread(piece, source, output, Schedule::kNone, Schedule::kNone);
    inside.spread(group, source, output, piece.driver(groups, group), here, Schedule::kNone);
    if (me == piece.rank) schedule.copy(output, source, false);
  }
  return schedule;
}

// Each piece has one group other than the root's at home. It goes from the root to a driver in the root's
// group, from there to the one at home, and from there to the other groups: then no group sends or receives
// more than the buffer's size.
Schedule broadcast_two_level(const Problem &problem, const Topology &topology) {
  Schedule schedule;
  const int me = problem.rank;
  const Groups groups = hosts_of(topology);
  const int group = groups.of(me);
  const int root_group = groups.of(problem.root);
  std::vector<int> homes;
  for (int g = 0; g < groups.size(); ++g) {
    if (g != root_group || groups.size() == 1) homes.push_back(g);
  }
  const Pieces pieces = cut_evenly(groups, homes, problem.count, problem.element);
  Inside inside(schedule, groups, me, pieces.largest);
  Crossing crossing(schedule, problem, groups, pieces.largest);
  for (const Piece &piece : pieces.list) {
    const Span output{Space::output, piece.offset, piece.count};
    const int first = piece.driver(groups, root_group);
    uint32_t here = Schedule::kNone;
    if (first != problem.root) {
      if (me == problem.root) schedule.send(first, output);
      if (me == first) here = schedule.recv(problem.root, output);
    }
    if (groups.size() > 1) {
      if (me == first) schedule.send(piece.rank, output, {here});
      if (me == piece.rank) here = schedule.recv(first, output);
      here = crossing.spread(piece, output, output, here, Schedule::kNone, root_group);
    }
    inside.spread(group, output, output, piece.driver(groups, group), here, Schedule::kNone, problem.root);
  }
  return schedule;
}

}  // namespace dicomm::coll
