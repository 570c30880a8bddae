// Runs the schedules of all ranks on a virtual clock. Pure: the same question gives the same answer
// everywhere.
#pragma once

#include <vector>

#include "model/machine.h"
#include "model/program.h"

namespace dicomm::model {

struct HostTraffic {
  int ranks = 0;
  uint64_t sent = 0;  // bytes through the NIC to other hosts
  uint64_t received = 0;
};

// The chain of steps that waited for one another and ended last, from time 0 to the end. The four times add
// up to the predicted one.
struct CriticalPath {
  uint64_t messages = 0;
  uint64_t remote_messages = 0;  // of those, between hosts
  uint64_t computations = 0;     // copies and reductions
  Picoseconds latency = 0;       // with overheads and the answers that long messages wait for
  Picoseconds transfer = 0;
  Picoseconds arithmetic = 0;
  Picoseconds waiting = 0;  // until a rank's way out or in, its arithmetic or a NIC was free
};

struct Prediction {
  Picoseconds time = 0;
  uint64_t steps = 0;
  uint64_t messages = 0;
  std::vector<HostTraffic> hosts;
  CriticalPath path;
};

// problems: one per rank. Fails as Program::build does; INTERNAL when the schedules wait for one another for
// ever; NOT_SUPPORTED when the machine is too slow for the clock.
Status simulate(const Algorithm &algorithm, const std::vector<Problem> &problems, const Topology &topology,
                const Machine &machine, Prediction &out);

}  // namespace dicomm::model
