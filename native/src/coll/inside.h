// Steps of one piece inside one group, where every member reaches every other cheaply: with messages, or with
// the calls of the vendor's library that serves the group.
#pragma once

#include "coll/fold.h"
#include "coll/groups.h"

namespace dicomm::coll {

class Inside {
 public:
  // `room`: elements of the largest piece. `convert`: the library cannot reduce inputs as they are.
  Inside(Schedule &schedule, const Groups &groups, int rank, uint64_t room, bool convert = false);
  // Every member's `input` to the member `at`, where `fold` gets it in rank order, or its sum from the
  // library. `read` becomes the last step that reads this rank's.
  void collect(int group, Span input, int at, Fold &fold, uint32_t &read);
  // From the member `at`, who has it in `source` after `ready`, to all others but `except`; they let go of
  // what was in `target` after `free`. Returns since when this rank has it.
  uint32_t spread(int group, Span source, Span target, int at, uint32_t ready, uint32_t free,
                  int except = -1);

 private:
  void collect_by_library(Span input, int at, Fold &fold, uint32_t &read);

  Schedule &schedule_;
  const Groups &groups_;
  const int rank_;
  const bool convert_;
  Slots arrived_;
  Slots converted_, summed_, fetched_;  // by_library: on the chip in two steps, then on the host
};

}  // namespace dicomm::coll
