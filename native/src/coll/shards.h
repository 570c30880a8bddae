// Reducing shard by shard round a ring, for allreduce and reduce_scatter.
#pragma once

#include <vector>

#include "coll/build.h"

namespace dicomm::coll {

// Shard i of every rank's input is reduced on rank i. A shard is cut into `chunks` pieces (the same number on
// all ranks), each finished into `result` (as large as the own shard).
struct ReducedShards {
  int chunks = 1;
  std::vector<uint32_t> finished;  // [chunk]: the step that wrote the chunk of the own shard
  std::vector<uint32_t>
      input_read;  // [shard * chunks + chunk]: after it that part of input is not read again
};

// Partial results of shard i start on rank i + 1 and go round to rank i.
ReducedShards reduce_shards_ring(Schedule &schedule, const Problem &problem, const Blocks &shards,
                                 Span result);

}  // namespace dicomm::coll
