// Which entry of a port's GID table to speak from. Never a fixed number: tables differ by host and change.
#pragma once

#include <vector>

#include "base/net.h"
#include "transport/verbs/abi.h"

namespace dicomm {

// The index of the best entry; -1 when there is none. `address`: the GID of the address at which this process
// listens (an IPv4 one mapped into IPv6), all zero when unknown.
//
// InfiniBand: entry 0. Ethernet: RoCE v2 before v1, since only v2 is routed; of v2 the listening address,
// then another IPv4 address, a global IPv6 one, a link-local one.
int choose_gid(const std::vector<ibv::GidEntry> &table, bool infiniband, const ibv::Gid &address);

ibv::Gid gid_of(const SocketAddress &address);

}  // namespace dicomm
