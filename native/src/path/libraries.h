// Which operations islands' libraries can do, or help to do. Pure.
#pragma once

#include "coll/schedule.h"

namespace dicomm {

// What the libraries of a communicator's islands have in common.
class LibrarySet {
 public:
  explicit LibrarySet(const Topology &topology);

  // For a collective that accumulates in `accumulation`; all but problem.libraries is there. On the host's
  // buffers it is none.
  Problem::Libraries use(const Problem &problem, dicomm_dtype accumulation, dicomm_reduce reduce) const;

 private:
  Problem::Libraries kind_ = Problem::Libraries::none;
  // Some rank has no chip of its own and cannot see where the others' buffers are: then all go by the islands
  // there are.
  bool without_chip_ = false;
  ChipInfo common_;  // of the members of islands
};

}  // namespace dicomm
