// Which chain of steps took the time, and on what.
#pragma once

#include "model/simulate.h"

namespace dicomm::model {

// program: after its run.
CriticalPath critical_path(const Program &program, const Topology &topology, const Machine &machine);

}  // namespace dicomm::model
