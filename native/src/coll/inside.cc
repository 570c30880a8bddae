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

// By library: pieces that one rank has under way from its chip. No fewer than the library runs ahead (Lag).
constexpr size_t kConverted = 4, kSummed = 12;

}  // namespace

Inside::Inside(Schedule &schedule, const Groups &groups, int rank, uint64_t room, bool convert)
    : schedule_(schedule),
      groups_(groups),
      rank_(rank),
      convert_(convert),
      arrived_(schedule, Space::stage, room, slots_of(groups, rank)),
      converted_(schedule, Space::chip_acc, room, kConverted),
      summed_(schedule, Space::chip_acc, room, kSummed),
      fetched_(schedule, Space::acc, room, kSummed) {}

void Inside::collect_by_library(Span input, int at, Fold &fold, uint32_t &read) {
  Operand mine{input, Schedule::kNone, &read};
  if (convert_) {
    const Slots::Slot slot = converted_.take(input.count);
    read = schedule_.copy(slot.span, input, false, {slot.used});
    mine = {slot.span, read, &slot.used};
  }
  if (rank_ != at) {
    *mine.used = schedule_.ccl(CclCall::reduce, at, {Space::chip_acc, 0, 0}, mine.span, {mine.ready});
    return;
  }
  const Slots::Slot slot = summed_.take(input.count);
  slot.used = schedule_.ccl(CclCall::reduce, at, slot.span, mine.span, {mine.ready, slot.used});
  *mine.used = slot.used;
  fold.add(fetched_.fetch({slot.span, slot.used, &slot.used}));
}

void Inside::collect(int group, Span input, int at, Fold &fold, uint32_t &read) {
  if (groups_.by_library(group)) {
    if (groups_.of(rank_) == group) collect_by_library(input, at, fold, read);
    return;
  }
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

uint32_t Inside::spread(int group, Span source, Span target, int at, uint32_t ready, uint32_t free,
                        int except) {
  if (groups_.of(rank_) != group) return Schedule::kNone;
  if (groups_.by_library(group)) {
    const bool gives = rank_ == at;
    return schedule_.ccl(CclCall::broadcast, at, gives ? Span{target.space, 0, 0} : target,
                         gives ? source : Span{target.space, 0, 0}, {gives ? ready : free});
  }
  if (rank_ != at) {
    return rank_ == except ? Schedule::kNone : schedule_.recv(at, target, {free});
  }
  const std::vector<int> &members = groups_.members(group);
  const size_t self = static_cast<size_t>(std::find(members.begin(), members.end(), at) - members.begin());
  for (size_t i = 1; i < members.size(); ++i) {  // not all members to the lowest one first
    const int member = members[(self + i) % members.size()];
    if (member != except) schedule_.send(member, source, {ready});
  }
  return ready;
}

}  // namespace dicomm::coll
