#include "coll/arena.h"

#include <algorithm>

namespace dicomm {

bool fits_arena(const Topology &topology) {
  const bool few = topology.size() > 1 && topology.size() <= kMostInArena;
  // Processors that a library serves are a chip, too; and a reducer that serves learns of operations by
  // messages.
  return few && topology.hosts() == 1 && std::ranges::all_of(topology.ranks, [](const RankInfo &rank) {
           return rank.chip.vendor == "cpu" && rank.chip.library.empty() && !rank.helps();
         });
}

}  // namespace dicomm
