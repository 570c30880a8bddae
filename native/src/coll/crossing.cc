#include "coll/crossing.h"

namespace dicomm::coll {

namespace {

// Slots: enough pieces under way to keep a link busy for as long as an answer takes to come back.
constexpr size_t kCrossing = 8;

}  // namespace

Crossing::Crossing(Schedule &schedule, const Problem &problem, const Groups &groups, uint64_t room)
    : schedule_(schedule),
      groups_(groups),
      rank_(problem.rank),
      element_(problem.element),
      wide_(problem.widened ? sizeof(float) : problem.element),
      arrived_inputs_(schedule, Space::stage, room, kCrossing),
      arrived_partials_(schedule, Space::acc, room, kCrossing),
      leaving_(schedule, Space::acc, room, kCrossing) {}

bool Crossing::as_inputs(int group) const {
  const size_t members = groups_.members(group).size();
  return members == 1 || members * element_ < wide_;
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

uint32_t Crossing::spread(const Piece &piece, Span source, Span target, uint32_t ready, uint32_t free,
                          int except) {
  for (int i = 1; i < groups_.size(); ++i) {
    const int group = wrap(piece.home + i, groups_.size());
    if (group == except) continue;
    const int driver = piece.driver(groups_, group);
    if (rank_ == piece.rank) schedule_.send(driver, source, {ready});
    if (rank_ == driver) ready = schedule_.recv(piece.rank, target, {free});
  }
  return ready;
}

}  // namespace dicomm::coll
