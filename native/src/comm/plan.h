// From the caller's dicomm_op to what the layers below need: checked blocks, a Problem, a Collective::Plan.
// Pure, but for the cache of programs.
#pragma once

#include "exec/collective.h"
#include "path/rules.h"

namespace dicomm {

// INVALID_ARGUMENT or NOT_SUPPORTED with what is wrong; nothing else is looked at before this returns OK.
Status plan_collective(const dicomm_op &op, const Topology &topology, const Rules &rules, int rank,
                       ProgramCache &programs, Collective::Plan &plan);
Status plan_point_to_point(const dicomm_op &op, int size, BlockList &blocks);
// "allreduce(float32, sum, 10 elements)": one rank's call, for mismatch errors.
std::string describe_call(const Fingerprint &fingerprint);

}  // namespace dicomm
