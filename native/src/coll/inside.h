// Steps of one piece inside one group, where every member reaches every other cheaply.
#pragma once

#include "coll/fold.h"
#include "coll/groups.h"

namespace dicomm::coll {

class Inside {
 public:
  // `room`: elements of the largest piece.
  Inside(Schedule &schedule, const Groups &groups, int rank, uint64_t room);
  // Every member's `input` to the member `at`, where `fold` gets it in rank order. `read` becomes the last
  // step that reads this rank's.
  void collect(int group, Span input, int at, Fold &fold, uint32_t &read);
  // From the member `at`, who has it in `source` after `ready`, to all others but `except`; they let go of
  // what was in `target` after `free`.
  void spread(int group, Span source, Span target, int at, uint32_t ready, uint32_t free, int except = -1);

 private:
  Schedule &schedule_;
  const Groups &groups_;
  const int rank_;
  Slots arrived_;
};

}  // namespace dicomm::coll
