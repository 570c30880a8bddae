// What no schedule can beat on a machine, whatever its algorithm.
#pragma once

#include <string>

#include "model/machine.h"
#include "model/simulate.h"

namespace dicomm::model {

struct Bound {
  Picoseconds time = 0;
  std::string reason;  // which of the bounds it is, for people
};

// The largest of:
//  - messages: the time in which word from one rank can reach all others. A rank has many messages under way,
//    one overhead apart, so this is less than ceil(log2 n) latencies when latency is long;
//  - bytes: what each host's NIC and each rank must send and receive at least, plus one message's latency.
//  With
//    S the buffer and H hosts, allreduce needs 2 (H - 1) / H S through an average NIC each way, the other
//    operations what one host needs of the others, once; with reducers allreduce needs as much for the hosts
//    of workers, on average over all hosts, and S through each of theirs;
//  - arithmetic: (n - 1) S spread over n ranks; with reducers, n of them workers, over all.
Bound lower_bound(const std::vector<Problem> &problems, const Topology &topology, const Machine &machine);

}  // namespace dicomm::model
