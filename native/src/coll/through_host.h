// Schedules for host memory, for a rank whose buffers are on a chip.
#pragma once

#include "coll/schedule.h"

namespace dicomm::coll {

// The same, with images of input and output on the host, and copies from and to the chip in parts as they are
// needed and finished. What it sends and receives does not change: the other ranks need not know.
Schedule through_host(const Problem &problem, Schedule schedule);

}  // namespace dicomm::coll
