#include "coll/crossing.h"

namespace dicomm::coll {

namespace {

// Slots of all members of a group together: enough pieces under way to keep a link busy until an answer comes
// back, and not many more, because what answers waits behind them. The same number on both ends, or one
// direction would run ahead of the other.
constexpr size_t kCrossing = 8;

size_t slots_of(const Groups &groups, int rank) {
  return std::max<size_t>(kCrossing / groups.members(groups.of(rank)).size(), 2);
}

}  // namespace

Crossing::Crossing(Schedule &schedule, const Problem &problem, const Groups &groups, uint64_t room)
    : schedule_(schedule),
      groups_(groups),
      rank_(problem.rank),
      element_(problem.element),
      wide_(problem.widened ? sizeof(float) : problem.element),
      arrived_inputs_(schedule, Space::stage, room, slots_of(groups, problem.rank)),
      arrived_partials_(schedule, Space::acc, room, slots_of(groups, problem.rank)),
      leaving_(schedule, Space::acc, room, slots_of(groups, problem.rank)) {}

bool Crossing::as_inputs(int group) const {
  const size_t members = groups_.members(group).size();
  return members == 1 || (members * element_ < wide_ && !groups_.by_library(group));
}

void Crossing::inputs(int group, Span input, int to, Fold &fold, uint32_t &read) {
  if (groups_.of(rank_) == group) read = schedule_.send(to, input);
  if (rank_ != to) return;
  for (const int member : groups_.members(group)) fold.add(arrived_inputs_.receive(member, input.count));
}

void Crossing::partial(int from, int to, uint64_t count, Fold &mine, Fold &theirs) {
  if (rank_ == from) {
    const Slots::Slot slot = leaving_.take(count);
    const uint32_t ready = mine.end(slot.span, false, {slot.used});
    slot.used = schedule_.send(to, slot.span, {ready});
  }
  if (rank_ == to) theirs.add(arrived_partials_.receive(from, count));
}

Crossing::Exchanged Crossing::exchange(int peer, const Operand &mine, uint64_t count) {
  const bool input = as_inputs(groups_.of(peer));
  return {schedule_.send(peer, mine.span, {mine.ready}),
          (input ? arrived_inputs_ : arrived_partials_).receive(peer, count)};
}

Schedule::After Crossing::spread(const Piece &piece, Span source, Span target, uint32_t ready, uint32_t free,
                                 int except) {
  if (rank_ != piece.rank) {
    const int group = groups_.of(rank_);
    const bool receives = group != piece.home && group != except && rank_ == piece.driver(groups_, group);
    return {receives ? schedule_.recv(piece.rank, target, {free}) : ready};
  }
  Schedule::After steps{ready};
  for (int i = 1; i < groups_.size(); ++i) {  // not all homes to the first group first
    const int group = wrap(piece.home + i, groups_.size());
    if (group != except) steps.push_back(schedule_.send(piece.driver(groups_, group), source, {ready}));
  }
  return steps;
}

}  // namespace dicomm::coll
