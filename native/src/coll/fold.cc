#include "coll/fold.h"

namespace dicomm::coll {

Slots::Slot Slots::take(uint64_t count) {
  const size_t i = turn_;
  turn_ = (turn_ + 1) % most_;
  if (i == places_.size()) {
    places_.reserve(most_);
    uint64_t &total = schedule_.scratch(space_);
    places_.push_back({total, Schedule::kNone});
    total += room_;
  }
  Place &place = places_[i];
  return {{space_, place.offset, count}, place.used};
}

Operand Slots::receive(int peer, uint64_t count) {
  const Slot slot = take(count);
  return {slot.span, schedule_.recv(peer, slot.span, {slot.used}), &slot.used};
}

Operand Slots::fetch(const Operand &from) {
  const Slot slot = take(from.span.count);
  slot.used = schedule_.to_host(slot.span, from.span, {from.ready, slot.used});
  if (from.used != nullptr) *from.used = slot.used;
  return {slot.span, slot.used, &slot.used};
}

void Fold::add(const Operand &operand) {
  if (!sum_) {
    sum_ = operand;
    return;
  }
  if (last_) combine();
  last_ = operand;
}

void Fold::read(const Operand &operand, uint32_t step) const {
  if (operand.used != nullptr) *operand.used = step;
}

// Both operands into a partial result. The running one stays in its slot.
void Fold::combine() {
  Operand to = *sum_;
  uint32_t free = Schedule::kNone;
  if (!partial_) {
    const Slots::Slot slot = partials_.take(sum_->span.count);
    to = {slot.span, Schedule::kNone, &slot.used};
    free = slot.used;
  }
  const uint32_t step =
      schedule_.reduce(to.span, sum_->span, last_->span, false, {sum_->ready, last_->ready, free});
  read(*sum_, step);
  read(*last_, step);
  to.ready = step;
  sum_ = to;
  last_.reset();
  partial_ = true;
}

uint32_t Fold::end(Span dst, bool finish, const Schedule::After &before) {
  Schedule::After after = before;
  after.push_back(sum_->ready);
  if (!last_) {
    const uint32_t step = schedule_.copy(dst, sum_->span, finish, after);
    read(*sum_, step);
    return step;
  }
  after.push_back(last_->ready);
  const uint32_t step = schedule_.reduce(dst, sum_->span, last_->span, finish, after);
  read(*sum_, step);
  read(*last_, step);
  return step;
}

Operand Fold::end() {
  if (last_) combine();
  return *sum_;
}

}  // namespace dicomm::coll
