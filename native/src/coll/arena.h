// When small messages go through memory that all ranks share (exec/arena.h). Pure.
#pragma once

#include "coll/schedule.h"

namespace dicomm {

// Up to these bytes a schedule of one round is one.
inline constexpr uint64_t kOneRoundBytes = uint64_t{256} << 10;

// Could the ranks have an arena: are they few (each looks at what every other has to say, and connects to
// those it wakes), on one host, without chips and without reducers?
inline constexpr int kMostInArena = 16;
bool fits_arena(const Topology &topology);
// The largest of the small messages: a rank's to all others fit into its slot.
inline constexpr uint64_t kArenaSlotBytes = uint64_t{64} << 10;
inline uint64_t most_in_arena(int ranks) { return kArenaSlotBytes / static_cast<uint64_t>(ranks); }
// Do the operation's small messages go through it?
inline bool uses_arena(const Algorithm &algorithm, const Problem &problem) {
  return problem.arena && algorithm.one_round && problem.bytes() <= kOneRoundBytes;
}

}  // namespace dicomm
