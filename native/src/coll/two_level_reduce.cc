// Reductions on two levels: inside each group, then between the groups' drivers. Groups are hosts, or islands
// whose libraries do the inner part; with all ranks in one group they are the flat `direct` ones. Groups of
// reducers give nothing and get nothing, but own pieces.
//
// All ranks get the same bits. Every piece is reduced on one rank, its owner, first the owner's group in rank
// order, then the other groups in theirs, and the result copied from there; or two groups exchange their
// sums, and on both sides the first group's comes first.
#include "coll/crossing.h"
#include "coll/helping.h"
#include "coll/inside.h"
#include "coll/landing.h"

namespace dicomm::coll {

namespace {

// Slots for sums that still lack an operand: another group's takes long to come.
size_t partial_slots(const Groups &groups) { return groups.size() > 1 ? 8 : 2; }
constexpr size_t kFinished = 4;  // slots for results on their way to the root

// One rank's schedule under construction. Sums that are made here to leave have slots of their own, or they
// would have to wait for those that need what others send.
struct Reduction {
  Reduction(const Problem &problem, const Groups &all, const Pieces &pieces)
      : groups(all),
        rank(problem.rank),
        inside(schedule, all, problem.rank, pieces.largest, problem.widened || problem.scaled),
        inside_leaving(schedule, all, problem.rank, pieces.largest, problem.widened || problem.scaled),
        crossing(schedule, problem, all, pieces.largest),
        landing(schedule, all, problem.rank, pieces.largest),
        lag(all),
        partials(schedule, Space::acc, pieces.largest, partial_slots(all)),
        partials_leaving(schedule, Space::acc, pieces.largest, 2) {}

  Fold fold() { return Fold(schedule, partials); }

  // What the members of `group` have in `input` to the rank `at`, into its fold.
  void contribute(const Piece &piece, int group, Span input, int at, Fold &into, uint32_t &read) {
    if (rank != at && groups.of(rank) != group) return;
    if (group == groups.of(at)) return inside.collect(group, input, at, into, read);
    if (crossing.as_inputs(group)) return crossing.inputs(group, input, at, into, read);
    const int driver = piece.driver(groups, group);
    Fold sum(schedule, partials_leaving);
    inside_leaving.collect(group, input, driver, sum, read);
    crossing.partial(driver, at, piece.offset, input.count, sum, into);
  }

  // The contributions of all groups but `except`, the one of `at` first.
  void contribute_all(const Piece &piece, Span input, int at, Fold &into, uint32_t &read, int except = -1) {
    for (int i = 0; i < groups.size(); ++i) {
      const int group = wrap(groups.of(at) + i, groups.size());
      if (group != except && !groups.helps(group)) contribute(piece, group, input, at, into, read);
    }
  }

  // The finished sum to `output`, which may be written after `free`.
  uint32_t end(Fold &sum, Span output, uint32_t free) {
    const Landing::Place place = landing.take(output, Schedule::kNone);
    return landing.land(place, output, {sum.end(place.span, true, {place.free}), free});
  }

  // `output` to this rank's group from its driver `at`, who has it after `here`.
  void spread(Span output, int at, uint32_t here, uint32_t free) {
    lag.append(
        [this, output, at, here, free] { inside.spread(groups.of(rank), output, output, at, here, free); });
  }

  Schedule done() {
    lag.finish();
    return std::move(schedule);
  }

  Schedule schedule;
  const Groups &groups;
  const int rank;
  Inside inside, inside_leaving;
  Crossing crossing;
  Landing landing;
  Lag lag;
  Slots partials, partials_leaving;
};

// Two groups: as many bytes cross when sums are exchanged as when sums cross one way and results the other,
// but each piece only once, and no direction has to wait for the other. Twice the additions; not where sums
// are wider than results.
Schedule allreduce_exchange(const Problem &problem, const Groups &groups) {
  const int group = groups.of(problem.rank);
  const Pieces pieces = cut_evenly(groups, {0}, problem.count, problem.element);
  Reduction r(problem, groups, pieces);
  for (const Piece &piece : pieces.list) {
    const Span input{Space::input, piece.offset, piece.count};
    const Span output{Space::output, piece.offset, piece.count};
    const int driver = piece.driver(groups, group);
    uint32_t read = Schedule::kNone, here = Schedule::kNone;
    Fold own = r.fold();
    r.inside.collect(group, input, driver, own, read);
    if (problem.rank == driver) {
      const int peer = piece.driver(groups, 1 - group);
      const auto [sent, mine, theirs] = r.crossing.exchange(peer, own.end(), piece.offset);
      Fold sum = r.fold();
      sum.add(group == 0 ? mine : theirs);
      sum.add(group == 0 ? theirs : mine);
      const Landing::Place place = r.landing.take(output, sent);  // output may be the memory of input
      const Schedule::After before =
          r.landing.on_chip() ? Schedule::After{sent, place.free} : Schedule::After{sent};
      here = r.landing.land(place, output, {sum.end(place.span, true, before), read});
    }
    r.spread(output, driver, here, read);
  }
  return r.done();
}

Schedule allreduce(const Problem &problem, const Groups &groups) {
  const int me = problem.rank;
  const bool helps = groups.helps(groups.of(me));
  if (groups.helping().empty() && groups.size() == 2 && !problem.widened)
    return allreduce_exchange(problem, groups);
  const Pieces pieces = cut_for_allreduce(groups, problem);
  Reduction r(problem, groups, pieces);
  tell_reducers(r.schedule, groups, pieces, me);
  for (const Piece &piece : pieces.list) {
    if (helps && me != piece.rank) continue;
    const Span input{Space::input, piece.offset, piece.count};
    const Span output{Space::output, piece.offset, piece.count};
    uint32_t read = Schedule::kNone, here = Schedule::kNone;
    Fold sum = r.fold();
    r.contribute_all(piece, input, piece.rank, sum, read);
    const int driver = piece.driver(groups, groups.of(me));
    if (me == driver) {
      const Landing::Place place = r.landing.take(output, read);
      if (me == piece.rank) here = sum.end(place.span, true, {place.free});
      Schedule::After there = r.crossing.spread(piece, place.span, place.span, here, place.free);
      there.push_back(read);
      here = r.landing.land(place, output, there);
    }
    if (!helps) r.spread(output, driver, here, read);
  }
  return r.done();
}

Schedule reduce_scatter(const Problem &problem, const Groups &groups) {
  const Pieces pieces = cut_blocks(groups, problem.counts, problem.element);
  const uint64_t own = Blocks(problem.counts).offset(problem.rank);
  Reduction r(problem, groups, pieces);
  for (const Piece &piece : pieces.list) {
    uint32_t read = Schedule::kNone;
    Fold sum = r.fold();
    r.contribute_all(piece, {Space::input, piece.offset, piece.count}, piece.rank, sum, read);
    if (problem.rank == piece.rank) r.end(sum, {Space::output, piece.offset - own, piece.count}, read);
  }
  return r.done();
}

// Each piece has one group other than the root's at home, where the other groups' contributions are added up
// before they go to a driver in the root's group, and from there to the root: then no group of workers sends
// or receives more than the buffer's size.
Schedule reduce(const Problem &problem, const Groups &groups) {
  const int me = problem.rank;
  const int root_group = groups.of(problem.root);
  const size_t working = groups.working().size();
  const Pieces pieces = cut_for_reduce(groups, problem);
  Reduction r(problem, groups, pieces);
  tell_reducers(r.schedule, groups, pieces, me);
  Slots finished(r.schedule, Space::stage, pieces.largest, kFinished);
  for (const Piece &piece : pieces.list) {
    const Span input{Space::input, piece.offset, piece.count};
    const Span output{Space::output, piece.offset, piece.count};
    const int owner = piece.driver(groups, root_group);
    uint32_t read = Schedule::kNone;
    Fold sum = r.fold();
    r.contribute(piece, root_group, input, owner, sum, read);
    if (working == 2) {
      r.contribute(piece, piece.home, input, owner, sum, read);
    } else if (working > 2) {
      Fold others = r.fold();
      r.contribute_all(piece, input, piece.rank, others, read, root_group);
      r.crossing.partial(piece.rank, owner, piece.offset, piece.count, others, sum);
    }
    if (me == owner && me == problem.root) {
      r.end(sum, output, read);
    } else if (me == owner) {
      const Slots::Slot slot = finished.take(piece.count);
      const uint32_t here = sum.end(slot.span, true, {slot.used});
      slot.used = r.schedule.send(problem.root, slot.span, {here});
    } else if (me == problem.root) {
      const Landing::Place place = r.landing.take(output, read);
      r.landing.land(place, output, {r.schedule.recv(owner, place.span, {place.free}), read});
    }
  }
  return r.done();
}

}  // namespace

Schedule allreduce_two_level(const Problem &problem, const Topology &topology) {
  return allreduce(problem, hosts_of(topology));
}
Schedule allreduce_direct(const Problem &problem, const Topology &) {
  return allreduce(problem, one_group(problem.size));
}
Schedule allreduce_islands(const Problem &problem, const Topology &topology) {
  return allreduce(problem, islands_of(topology));
}
Schedule allreduce_reducers(const Problem &problem, const Topology &topology) {
  return allreduce(problem, parties_of(topology));
}
Schedule allreduce_reducers_islands(const Problem &problem, const Topology &topology) {
  return allreduce(problem, island_parties_of(topology));
}
Schedule reduce_reducers(const Problem &problem, const Topology &topology) {
  return reduce(problem, parties_of(topology));
}
Schedule reduce_reducers_islands(const Problem &problem, const Topology &topology) {
  return reduce(problem, island_parties_of(topology));
}
Schedule reduce_islands(const Problem &problem, const Topology &topology) {
  return reduce(problem, islands_of(topology));
}
Schedule reduce_scatter_islands(const Problem &problem, const Topology &topology) {
  return reduce_scatter(problem, islands_of(topology));
}
Schedule reduce_two_level(const Problem &problem, const Topology &topology) {
  return reduce(problem, hosts_of(topology));
}
Schedule reduce_direct(const Problem &problem, const Topology &) {
  return reduce(problem, one_group(problem.size));
}
Schedule reduce_scatter_two_level(const Problem &problem, const Topology &topology) {
  return reduce_scatter(problem, hosts_of(topology));
}
Schedule reduce_scatter_direct(const Problem &problem, const Topology &) {
  return reduce_scatter(problem, one_group(problem.size));
}

}  // namespace dicomm::coll
