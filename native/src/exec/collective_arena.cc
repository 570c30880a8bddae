// The part of Collective that moves small messages through the arena.

#include <algorithm>
#include <cstring>

#include "exec/collective.h"

namespace dicomm {

// Sends wait for the turn, receives for their sender's; a value: the peer has left, and nothing will come.
std::optional<Status> Collective::begin_carried(uint32_t index) {
  const Step &step = plan_.program->schedule.steps[index];
  const bool comes = step.kind == StepKind::recv && place_.arena->there(step.peer, turn_);
  if (!comes && place_.channel.left.contains(step.peer))
    return Messenger::has_left(place_.channel, step.peer);
  if (step.kind == StepKind::send) posting_.push_back(index);
  return std::nullopt;
}

void Collective::arena_changed() {
  retain();
  if (!done() && ending_.ok() && place_.arena->may_post(turn_)) post();
  take_arrived();
  if (!done()) run();
  release();
}

int Collective::awaited_rank() const {
  if (arriving_.size() != 1) return Arena::kSeveral;
  return plan_.program->schedule.steps[arriving_.front()].peer;
}

// All sends of an algorithm of one round are there from the start.
void Collective::post() {
  place_.arena->begin({seq, plan_.fingerprint});
  for (const uint32_t index : posting_) {
    const Step &step = plan_.program->schedule.steps[index];
    place_.arena->put(step.peer, address(step.a), bytes_of(step.a));
  }
  for (const uint32_t index : posting_) settle(index);
  posting_.clear();
  place_.arena->publish();
}

void Collective::take_arrived() {
  for (size_t i = 0; i < arriving_.size() && !done();) {
    const uint32_t index = arriving_[i];
    if (!place_.arena->arrived(plan_.program->schedule.steps[index].peer, turn_)) {
      ++i;
      continue;
    }
    arriving_[i] = arriving_.back();
    arriving_.pop_back();
    take(index);
  }
}

// Counts that do not agree may have one side use the arena and the other messages.
void Collective::take(uint32_t index) {
  const Step &step = plan_.program->schedule.steps[index];
  const auto message = place_.arena->message(step.peer, turn_);
  const uint64_t expected = bytes_of(step.dst);
  const bool agreed = carried(step.dst) ? message && message->size() == expected : !message;
  if (!agreed) {
    const std::string sent = message ? concat(message->size()) : std::string("more");
    return ended(
        index,
        Status::make(DICOMM_MISMATCH, "rank ", step.peer, " sent ", sent, " bytes where this rank expects ",
                     expected, "; the counts given on the two ranks do not agree"),
        step.peer);
  }
  if (!message) return;  // it comes by itself
  if (expected > 0) std::memcpy(address(step.dst), message->data(), expected);
  settle(index);
}

void Collective::leave_arena() {
  if (turn_ != kNoTurn) place_.arena->leave(turn_);
}

}  // namespace dicomm
