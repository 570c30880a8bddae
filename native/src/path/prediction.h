// How long an operation takes on a machine by the model, as text for people. Pure.
#pragma once

#include <string>
#include <vector>

#include "coll/schedule.h"
#include "model/machine.h"

namespace dicomm {

// problems: one per rank. Time, NICs and critical path of `chosen`, the bound, all algorithms of the
// operation best first, and the machine.
std::string predict(const Algorithm &chosen, const std::vector<Problem> &problems, const Topology &topology,
                    const model::Machine &machine);

}  // namespace dicomm
