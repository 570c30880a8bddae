// Between the host, where pieces cross between groups, and the memory of a rank's chip.
#pragma once

#include <deque>
#include <functional>

#include "coll/fold.h"
#include "coll/groups.h"

namespace dicomm::coll {

// Libraries do not check that their ranks called the same operation; what they do otherwise is anything. So
// each member hears from the one before it first, by a message without data, whose header tells the
// operation. Appended before all other steps.
void agree(Schedule &schedule, const std::vector<int> &members, int rank);

// Where what crosses arrives: in the output itself; in slots on the way there, where a library serves this
// rank's group and the output is its chip's memory; in slots where a reducer has no output.
class Landing {
 public:
  Landing(Schedule &schedule, const Groups &groups, int rank, uint64_t room);
  bool on_chip() const { return on_chip_; }

  struct Place {
    Span span;
    uint32_t free;  // after this step it may be filled
    uint32_t *used;
  };
  // For a piece of `output` that may be written after `free`.
  Place take(Span output, uint32_t free);
  // What lies there after `after` to the output. Returns the step after which it is there, and the place
  // free.
  uint32_t land(const Place &place, Span output, const Schedule::After &after);
  // This rank's `from`, where it can be sent from.
  Operand leave(const Operand &from) { return on_chip_ ? leaving_.fetch(from) : from; }

 private:
  Schedule &schedule_;
  const bool on_chip_, in_slots_;
  Slots arriving_, leaving_;
};

// A library's calls start in one order. Were each piece's last call right behind its first, the first of the
// next piece would wait until this one has crossed. So the last ones are appended some pieces later.
class Lag {
 public:
  explicit Lag(const Groups &groups) : pieces_(groups.any_by_library() ? kPieces : 0) {}
  void append(std::function<void()> steps);
  void finish();

 private:
  static constexpr size_t kPieces = 12;
  const size_t pieces_;
  std::deque<std::function<void()>> later_;
};

}  // namespace dicomm::coll
