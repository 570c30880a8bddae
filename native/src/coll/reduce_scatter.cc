#include "coll/shards.h"

namespace dicomm::coll {

Schedule reduce_scatter_ring(const Problem &problem, const Topology &) {
  Schedule schedule;
  const Blocks shards(problem.counts);
  reduce_shards_ring(schedule, problem, shards, {Space::output, 0, shards.count(problem.rank)});
  return schedule;
}

}  // namespace dicomm::coll
