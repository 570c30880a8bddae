// Bootstrap: how the ranks of a new communicator learn of one another through a store.
#pragma once

#include <string>

#include "comm/communicator.h"
#include "store/store.h"

namespace dicomm {

// Publishes this process under prefix/rank and reads what rank 0 makes of all of them. Fills setup's id,
// peers and topology. Blocks up to the deadline without the engine lock; TIMED_OUT names the missing ranks.
// Ranks that do not go together are refused on all of them, by one sentence.
Status bootstrap(Context &context, Store &store, const std::string &prefix, int rank, int size,
                 Nanos deadline, Communicator::Setup &setup);

// `records` of the same ranks, with their hosts numbered: hosts are the places within which ranks share
// memory (transport/registry.h). Then islands are formed, which may be refused.
Status topology_of(const std::vector<PeerAddress> &peers, std::vector<RankInfo> records, Topology &out);

}  // namespace dicomm
