// From the caller's dicomm_op to what the layers below need: checked blocks, a Problem, a Collective::Plan.
// Pure, but for the cache of programs.
#pragma once

#include "exec/collective.h"
#include "path/libraries.h"
#include "path/rules.h"

namespace dicomm {

// What a communicator's operations have in common.
struct Planning {
  const Topology &topology;
  const Rules &rules;
  const LibrarySet &libraries;
  int rank;
  int workers;                       // ranks that are no reducers
  const Chip *chip;                  // null: none
  std::optional<dicomm_dtype> wire;  // for what crosses of sums of float32
  ProgramCache &programs;
  bool arena;  // the ranks have one
};

// INVALID_ARGUMENT or NOT_SUPPORTED with what is wrong; nothing else is looked at before this returns OK.
Status plan_collective(const dicomm_op &op, const Planning &planning, Collective::Plan &plan);
// on_chip: the buffer is the chip's memory.
Status plan_point_to_point(const dicomm_op &op, int size, const Chip *chip, BlockList &blocks, bool &on_chip);
// "allreduce(float32, sum, 10 elements)": one rank's call, for mismatch errors.
std::string describe_call(const Fingerprint &fingerprint);

}  // namespace dicomm
