// Reducing operands in their order, as they come, through scratch places that later ones use again.
#pragma once

#include <optional>
#include <vector>

#include "coll/schedule.h"

namespace dicomm::coll {

// What a reduction reads.
struct Operand {
  Span span;
  uint32_t ready = Schedule::kNone;  // the step that fills it; kNone: there from the start
  uint32_t *used = nullptr;          // becomes the last step that reads it
};

// Up to `most` scratch places of `room` elements each, given out in turn. A place is given out again when its
// last content has been read, so that a long operation needs no more memory than a short one, and what it
// reduces is still in the cache. Made on first use.
//
// The content of a place must be read by steps that are appended before the place's next turn comes.
class Slots {
 public:
  Slots(Schedule &schedule, Space space, uint64_t room, size_t most)
      : schedule_(schedule), space_(space), room_(room), most_(most) {}

  struct Slot {
    Span span;
    uint32_t &used;  // when taken: after this step it may be filled; then as in Operand
  };
  Slot take(uint64_t count);
  uint64_t room() const { return room_; }
  // Receives into the next slot.
  Operand receive(int peer, uint64_t count);
  // Fills the next slot from the chip.
  Operand fetch(const Operand &from);

 private:
  struct Place {
    uint64_t offset;
    uint32_t used;
  };
  Schedule &schedule_;
  Space space_;
  uint64_t room_;
  size_t most_, turn_ = 0;
  std::vector<Place> places_;  // reserved at once: their addresses stay
};

// operand op operand op ..., pairwise from the left. Takes slots for partial results.
class Fold {
 public:
  Fold(Schedule &schedule, Slots &partials) : schedule_(schedule), partials_(partials) {}
  void add(const Operand &operand);
  // The result into dst, which may be written after `before`. Returns the step.
  uint32_t end(Span dst, bool finish, const Schedule::After &before = {});
  // The unfinished result: in a slot, or the only operand as it is.
  Operand end();

 private:
  void combine();
  void read(const Operand &operand, uint32_t step) const;

  Schedule &schedule_;
  Slots &partials_;
  std::optional<Operand> sum_, last_;
  bool partial_ = false;  // sum_ lies in a slot of ours
};

}  // namespace dicomm::coll
