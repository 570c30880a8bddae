// What operations and reductions are, where it decides how they are done.
#pragma once

#include "dicomm/dicomm.h"

namespace dicomm {

inline bool is_reduction(int opcode) {
  return opcode == DICOMM_ALLREDUCE || opcode == DICOMM_REDUCE || opcode == DICOMM_REDUCE_SCATTER;
}

// Sums, but for what is done to inputs before and to results after.
inline bool is_sum(int reduce) {
  return reduce == DICOMM_SUM || reduce == DICOMM_AVG || reduce == DICOMM_PREMUL_SUM;
}

// Inputs are not used as they are: multiplied by premul_sum's factor, bool made logical.
inline bool scales_inputs(int reduce, int dtype) {
  return reduce == DICOMM_PREMUL_SUM || dtype == DICOMM_BOOL;
}

}  // namespace dicomm
