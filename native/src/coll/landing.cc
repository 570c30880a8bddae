#include "coll/landing.h"

namespace dicomm::coll {

namespace {

constexpr size_t kArriving = 8, kLeaving = 8;

}  // namespace

void agree(Schedule &schedule, const std::vector<int> &members, int rank) {
  const int size = static_cast<int>(members.size());
  if (size == 1) return;
  const auto me = static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin());
  const auto member = [&](int place) { return members[static_cast<size_t>(wrap(place, size))]; };
  const Span nothing{Space::stage, 0, 0}, on_chip{Space::chip_stage, 0, 0};
  schedule.send(member(me + 1), nothing);
  const uint32_t heard = schedule.recv(member(me - 1), nothing);
  schedule.copy(on_chip, on_chip, false, {heard});  // the lane's first step: nothing passes it
}

Landing::Landing(Schedule &schedule, const Groups &groups, int rank, uint64_t room)
    : schedule_(schedule),
      on_chip_(groups.by_library(groups.of(rank))),
      in_slots_(on_chip_ || groups.helps(groups.of(rank))),
      arriving_(schedule, Space::stage, room, kArriving),
      leaving_(schedule, Space::stage, room, kLeaving) {
  schedule.on_chip = on_chip_;
  if (on_chip_) agree(schedule, groups.members(groups.of(rank)), rank);
}

Landing::Place Landing::take(Span output, uint32_t free) {
  if (!in_slots_) return {output, free, nullptr};
  const Slots::Slot slot = arriving_.take(output.count);
  return {slot.span, slot.used, &slot.used};
}

uint32_t Landing::land(const Place &place, Span output, const Schedule::After &after) {
  if (!in_slots_) return after.front();
  return *place.used = on_chip_ ? schedule_.to_chip(output, place.span, after) : schedule_.join(after);
}

void Lag::append(std::function<void()> steps) {
  later_.push_back(std::move(steps));
  if (later_.size() <= pieces_) return;
  later_.front()();
  later_.pop_front();
}

void Lag::finish() {
  for (const auto &steps : later_) steps();
  later_.clear();
}

}  // namespace dicomm::coll
