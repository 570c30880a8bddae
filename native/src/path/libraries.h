// Which operations islands' libraries can do, or help to do. Pure.
#pragma once

#include "coll/schedule.h"

namespace dicomm {

// What the libraries of a communicator's islands have in common.
class LibrarySet {
 public:
  LibrarySet() = default;
  explicit LibrarySet(const Topology &topology);

  // Some rank's island has a library and other ranks in it.
  bool any() const { return kind_ != Problem::Libraries::none; }
  // Some rank has no chip of its own: it cannot tell whether the others' buffers are on theirs.
  bool some_without_chip() const { return without_chip_; }
  // For a collective on buffers on chips.
  Problem::Libraries use(dicomm_opcode op, dicomm_dtype accumulation, dicomm_reduce reduce, bool widened,
                         bool scaled) const;

 private:
  Problem::Libraries kind_ = Problem::Libraries::none;
  bool without_chip_ = false;
  ChipInfo common_;  // of the members of islands
};

}  // namespace dicomm
