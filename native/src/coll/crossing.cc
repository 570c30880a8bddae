#include "coll/crossing.h"

namespace dicomm::coll {

namespace {

// Slots of all members of a group together: enough pieces under way to keep a link busy until an answer comes
// back, and not many more, because what answers waits behind them. The same number on both ends, or one
// direction would run ahead of the other.
constexpr size_t kCrossing = 8;

size_t slots_of(const Groups &groups, int rank) {
  // A reducer hears from all others at once.
  if (groups.helps(groups.of(rank))) return std::clamp<size_t>(2 * groups.working().size(), kCrossing, 32);
  return std::max<size_t>(kCrossing / groups.members(groups.of(rank)).size(), 2);
}

}  // namespace

Crossing::Crossing(Schedule &schedule, const Problem &problem, const Groups &groups, uint64_t room)
    : schedule_(schedule),
      groups_(groups),
      rank_(problem.rank),
      element_(problem.element),
      wide_(problem.widened ? sizeof(float) : problem.element),
      prepared_(problem.scaled && problem.role != Problem::Role::peer),
      wire_(problem.wire),
      arrived_inputs_(schedule, Space::stage, room, slots_of(groups, problem.rank)),
      arrived_partials_(schedule, Space::acc, room, slots_of(groups, problem.rank)),
      leaving_(schedule, Space::acc, room, slots_of(groups, problem.rank)),
      wire_out_(schedule, Space::wire, room, slots_of(groups, problem.rank)),
      wire_in_(schedule, Space::wire, room, slots_of(groups, problem.rank)),
      kept_inputs_(schedule, Space::stage, room, slots_of(groups, problem.rank)),
      kept_partials_(schedule, Space::acc, room, slots_of(groups, problem.rank)) {}

bool Crossing::as_inputs(int group) const {
  const size_t members = groups_.members(group).size();
  if (prepared_) return false;
  return members == 1 || (members * element_ < wide_ && !groups_.by_library(group));
}

Operand Crossing::encode(const Operand &from, uint64_t at) {
  const Slots::Slot slot = wire_out_.take(from.span.count);
  slot.used = schedule_.encode(slot.span, from.span, at, {from.ready, slot.used});
  if (from.used != nullptr) *from.used = slot.used;
  return {slot.span, slot.used, &slot.used};
}

// What the receivers of `wire` will have.
Operand Crossing::decode(const Operand &wire, bool input) {
  const Slots::Slot slot = (input ? kept_inputs_ : kept_partials_).take(wire.span.count);
  slot.used = schedule_.decode(slot.span, wire.span, {wire.ready, slot.used});
  return {slot.span, slot.used, &slot.used};
}

Operand Crossing::receive(int peer, uint64_t count, bool input) {
  Slots &arrived = input ? arrived_inputs_ : arrived_partials_;
  if (!encodes()) return arrived.receive(peer, count);
  const Operand wire = wire_in_.receive(peer, count);
  const Slots::Slot slot = arrived.take(count);
  slot.used = *wire.used = schedule_.decode(slot.span, wire.span, {wire.ready, slot.used});
  return {slot.span, slot.used, &slot.used};
}

void Crossing::inputs(int group, Span input, int to, Fold &fold, uint32_t &read) {
  if (groups_.of(rank_) == group) {
    if (encodes()) {
      const Operand wire = encode({input, Schedule::kNone, &read}, input.offset);
      *wire.used = schedule_.send(to, wire.span, {wire.ready});
    } else {
      read = schedule_.send(to, input);
    }
  }
  if (rank_ != to) return;
  for (const int member : groups_.members(group)) fold.add(receive(member, input.count, true));
}

void Crossing::partial(int from, int to, uint64_t at, uint64_t count, Fold &mine, Fold &theirs) {
  if (rank_ == from && encodes()) {
    const Operand wire = encode(mine.end(), at);
    *wire.used = schedule_.send(to, wire.span, {wire.ready});
  } else if (rank_ == from) {
    const Slots::Slot slot = leaving_.take(count);
    const uint32_t ready = mine.end(slot.span, false, {slot.used});
    slot.used = schedule_.send(to, slot.span, {ready});
  }
  if (rank_ == to) theirs.add(receive(from, count, false));
}

// Both sides must add up the same: with an encoding also what has been encoded here.
Crossing::Exchanged Crossing::exchange(int peer, const Operand &mine, uint64_t at) {
  const bool input = as_inputs(groups_.of(peer));
  if (!encodes()) {
    return {schedule_.send(peer, mine.span, {mine.ready}), mine, receive(peer, mine.span.count, input)};
  }
  const bool own_input = as_inputs(groups_.of(rank_));
  const Operand wire = encode(mine, at);
  const Operand kept = decode(wire, own_input);
  const uint32_t sent = schedule_.send(peer, wire.span, {wire.ready});
  *wire.used = schedule_.join({sent, kept.ready});
  return {sent, kept, receive(peer, mine.span.count, input)};
}

Schedule::After Crossing::spread(const Piece &piece, Span source, Span target, uint32_t ready, uint32_t free,
                                 int except) {
  if (rank_ != piece.rank) {
    const int group = groups_.of(rank_);
    const bool receives = group != piece.home && group != except && !groups_.helps(group) &&
                          rank_ == piece.driver(groups_, group);
    if (!receives) return {ready};
    if (!encodes()) return {schedule_.recv(piece.rank, target, {free})};
    const Operand wire = wire_in_.receive(piece.rank, target.count);
    return {*wire.used = schedule_.decode(target, wire.span, {wire.ready, free})};
  }
  Operand leaving{source, ready};
  if (encodes()) {
    leaving = encode(leaving, piece.offset);
    ready = schedule_.decode(source, leaving.span, {leaving.ready});  // as all others will have it
  }
  Schedule::After steps{ready};
  for (int i = 1; i < groups_.size(); ++i) {  // not all homes to the first group first
    const int group = wrap(piece.home + i, groups_.size());
    if (group == except || groups_.helps(group)) continue;
    steps.push_back(schedule_.send(piece.driver(groups_, group), leaving.span, {leaving.ready}));
  }
  if (encodes()) *leaving.used = schedule_.join(steps);
  return steps;
}

}  // namespace dicomm::coll
