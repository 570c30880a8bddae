// Bootstrap: how the ranks of a new communicator learn of one another through a store.
#pragma once

#include <string>

#include "comm/communicator.h"
#include "store/store.h"

namespace dicomm {

// Publishes this process under prefix/rank and reads what rank 0 makes of all of them. Fills setup's id,
// peers and topology. Blocks up to the deadline without the engine lock; TIMED_OUT names the missing ranks.
Status bootstrap(Context &context, Store &store, const std::string &prefix, int rank, int size,
                 Nanos deadline, Communicator::Setup &setup);

// Hosts are the places within which ranks share memory (transport/registry.h).
Topology topology_of(const std::vector<PeerAddress> &peers);

}  // namespace dicomm
