// Which entry of a port's GID table to speak from. Never a fixed number: tables differ by host and change
// when an interface loses its address.
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

bool same(const ibv::Gid &a, const ibv::Gid &b);
// By the first 24 bits of an IPv4 address, and the first 64 of any other: the table does not tell how long
// their prefixes are.
bool same_network(const ibv::Gid &a, const ibv::Gid &b);

ibv::Gid gid_of(const SocketAddress &address);

}  // namespace dicomm
