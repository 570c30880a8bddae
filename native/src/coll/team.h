// Whole-buffer algorithms of few rounds among the ranks of a list: all ranks, the members of a group, or one
// leader per group. They build the small-message algorithms, flat and on two levels.
//
// A member is named by its place in the list; place 0 is the root of trees.
#pragma once

#include <vector>

#include "coll/build.h"
#include "coll/fold.h"

namespace dicomm::coll {

struct Team {
  std::vector<int> ranks;
  int me = -1;  // this rank's place; -1: it is not in the list
  int size() const { return static_cast<int>(ranks.size()); }
  int rank(int place) const { return ranks[static_cast<size_t>(place)]; }
};

// All ranks, from `first` on and round.
Team everybody(const Problem &problem, int first = 0);
// `ranks` with `first` in front, the others in their order behind it and round.
Team team_of(const std::vector<int> &ranks, int first, int rank);

// Which members' operands are input as it is: a rank that has nothing to add sends that.
using Raw = std::vector<bool>;  // by place; empty: all

// Up a binomial tree. `sum` holds this rank's own operand, and on the root then all of them, `count` elements
// each, to be ended by the caller. Elsewhere returns the send after which this rank has done its part.
uint32_t tree_reduce(Schedule &schedule, const Team &team, const Raw &raw, uint64_t count, Fold &sum);
// `span` from the root, who has it after `here`, down a binomial tree; the others let go of what was there
// after `free`. Returns the steps after which this rank has it.
Schedule::After tree_broadcast(Schedule &schedule, const Team &team, Span span, Schedule::After here,
                               uint32_t free = Schedule::kNone);
// A message without data: only the news.
inline constexpr Span kNothing{Space::stage, 0, 0};
// Up to the root, who has heard from all members after the steps returned.
Schedule::After tree_arrive(Schedule &schedule, const Team &team);
// Everybody hears of everybody in log2 rounds. Speaks after `heard`; has heard of all after what is returned.
Schedule::After dissemination(Schedule &schedule, const Team &team, Schedule::After heard);

// Recursive doubling: everybody's operand, reduced, into everybody's `dst`, from the same operands in the
// same order. `own` is input as it is where `raw` says so. Returns the step that writes dst.
uint32_t doubling(Schedule &schedule, const Team &team, const Raw &raw, const Operand &own, Span dst,
                  bool finish);

// Bruck's allgather. `held`: the members' blocks, which lie in stage from 0 on, this rank's first, then those
// of the members after it and round. Its own is there after `ready`. Returns the steps after which all are.
Schedule::After bruck(Schedule &schedule, const Team &team, const Blocks &held, const Schedule::After &ready);

}  // namespace dicomm::coll
