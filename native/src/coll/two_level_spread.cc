// Broadcast and allgather on two levels: to one driver per group, and from there to its group. Groups are
// hosts, or islands whose libraries do the inner part.
#include "coll/crossing.h"
#include "coll/inside.h"
#include "coll/landing.h"

namespace dicomm::coll {

namespace {

// One rank's schedule under construction.
struct Spreading {
  Spreading(const Problem &problem, const Groups &all, const Pieces &pieces)
      : groups(all),
        rank(problem.rank),
        group(all.of(problem.rank)),
        inside(schedule, all, problem.rank, pieces.largest),
        crossing(schedule, problem, all, pieces.largest),
        landing(schedule, all, problem.rank, pieces.largest) {}

  // From the piece's own driver, who has it in `source` after `here`, to the other groups' and, but in the
  // driver's own group, into `output`, where it is after the step returned.
  uint32_t cross(const Piece &piece, Span source, Span output, uint32_t here, int except = -1) {
    if (rank == piece.rank) {
      const bool alone = groups.size() == 1 || (groups.size() == 2 && except >= 0);
      if (alone) return here;
      const Operand leaving = landing.leave({source, here});
      const Schedule::After read =
          crossing.spread(piece, leaving.span, output, leaving.ready, Schedule::kNone, except);
      if (leaving.used != nullptr) *leaving.used = schedule.join(read);
      return here;
    }
    if (group == piece.home || group == except || rank != piece.driver(groups, group)) return here;
    return receive(piece.rank, output);
  }

  uint32_t receive(int peer, Span output) {
    const Landing::Place place = landing.take(output, Schedule::kNone);
    return landing.land(place, output, {schedule.recv(peer, place.span, {place.free})});
  }

  void send(int peer, Span source, uint32_t here) {
    const Operand leaving = landing.leave({source, here});
    const uint32_t sent = schedule.send(peer, leaving.span, {leaving.ready});
    if (leaving.used != nullptr) *leaving.used = sent;
  }

  Schedule schedule;
  const Groups &groups;
  const int rank, group;
  Inside inside;
  Crossing crossing;
  Landing landing;
};

// A block goes from its rank to the members of its own group and to a driver in each other one.
Schedule allgather(const Problem &problem, const Groups &groups) {
  const int me = problem.rank;
  const Pieces pieces = cut_blocks(groups, problem.counts, problem.element);
  Spreading s(problem, groups, pieces);
  const uint64_t own = Blocks(problem.counts).offset(me);
  for (const Piece &piece : pieces.list) {
    const Span output{Space::output, piece.offset, piece.count};
    const Span source = me == piece.rank ? Span{Space::input, piece.offset - own, piece.count} : output;
    const uint32_t here = s.cross(piece, source, output, Schedule::kNone);
    s.inside.spread(s.group, source, output, piece.driver(groups, s.group), here, Schedule::kNone);
    if (me == piece.rank) s.schedule.copy(output, source, false);
  }
  return std::move(s.schedule);
}

// Each piece has one group other than the root's at home. It goes from the root to a driver in the root's
// group, from there to the one at home, and from there to the other groups: then no group sends or receives
// more than the buffer's size.
Schedule broadcast(const Problem &problem, const Groups &groups) {
  const int me = problem.rank;
  const int root_group = groups.of(problem.root);
  std::vector<int> homes;
  for (int g = 0; g < groups.size(); ++g) {
    if (g != root_group || groups.size() == 1) homes.push_back(g);
  }
  const Pieces pieces = cut_evenly(groups, homes, problem.count, problem.element);
  Spreading s(problem, groups, pieces);
  // With a library, the root's group has all pieces from the root.
  const bool given = groups.by_library(root_group);
  for (const Piece &piece : pieces.list) {
    const Span output{Space::output, piece.offset, piece.count};
    const int first = piece.driver(groups, root_group);
    uint32_t here = Schedule::kNone;
    if (given && s.group == root_group) {
      here = s.inside.spread(root_group, output, output, problem.root, here, here);
    } else if (first != problem.root && !given) {
      if (me == problem.root) s.schedule.send(first, output);
      if (me == first) here = s.schedule.recv(problem.root, output);
    }
    if (groups.size() > 1) {
      if (me == first) s.send(piece.rank, output, me == problem.root ? Schedule::kNone : here);
      if (me == piece.rank) here = s.receive(first, output);
      here = s.cross(piece, output, output, here, root_group);
    }
    if (given && s.group == root_group) continue;
    s.inside.spread(s.group, output, output, piece.driver(groups, s.group), here, Schedule::kNone,
                    problem.root);
  }
  return std::move(s.schedule);
}

}  // namespace

Schedule allgather_two_level(const Problem &problem, const Topology &topology) {
  return allgather(problem, hosts_of(topology));
}
Schedule allgather_islands(const Problem &problem, const Topology &topology) {
  return allgather(problem, islands_of(topology));
}
Schedule broadcast_two_level(const Problem &problem, const Topology &topology) {
  return broadcast(problem, hosts_of(topology));
}
Schedule broadcast_islands(const Problem &problem, const Topology &topology) {
  return broadcast(problem, islands_of(topology));
}

}  // namespace dicomm::coll
