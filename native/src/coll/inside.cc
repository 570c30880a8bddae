#include "coll/inside.h"

namespace dicomm::coll {

namespace {

// Slots for the inputs of the other members: a few pieces of each, within bounds. Fewer where a link is to be
// kept busy, so that the first pieces leave before much else is done.
size_t slots_of(const Groups &groups, int rank) {
  const size_t others = groups.members(groups.of(rank)).size() - 1;
  const size_t each = groups.size() > 1 ? 2 : 4;
  return std::clamp<size_t>(each * others, 2 * each, 32);
}

}  // namespace

Inside::Inside(Schedule &schedule, const Groups &groups, int rank, uint64_t room)
    : schedule_(schedule),
      groups_(groups),
      rank_(rank),
      arrived_(schedule, Space::stage, room, slots_of(groups, rank)) {}

void Inside::collect(int group, Span input, int at, Fold &fold, uint32_t &read) {
  if (rank_ != at) {
    if (groups_.of(rank_) == group) read = schedule_.send(at, input);
    return;
  }
  for (const int member : groups_.members(group)) {
    if (member == at) {
      fold.add({input, Schedule::kNone, &read});
    } else {
      fold.add(arrived_.receive(member, input.count));
    }
  }
}

void Inside::spread(int group, Span source, Span target, int at, uint32_t ready, uint32_t free, int except) {
  if (groups_.of(rank_) != group) return;
  if (rank_ != at) {
    if (rank_ != except) schedule_.recv(at, target, {free});
    return;
  }
  const std::vector<int> &members = groups_.members(group);
  const size_t self = static_cast<size_t>(std::find(members.begin(), members.end(), at) - members.begin());
  for (size_t i = 1; i < members.size(); ++i) {  // not all members to the lowest one first
    const int member = members[(self + i) % members.size()];
    if (member != except) schedule_.send(member, source, {ready});
  }
}

}  // namespace dicomm::coll
