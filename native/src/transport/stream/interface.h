// Which of this machine's addresses the listener binds.
#pragma once

#include <string>

#include "base/net.h"

namespace dicomm {

// `interface` (a name or a numeric address) if given; else the local address from which `route_to` is reached
// (asks the routing table, no packet leaves); else the first interface that is up and neither loopback nor a
// container or virtual machine bridge; else loopback. Port 0. INVALID_ARGUMENT lists what there is.
Status choose_address(const std::string &interface, const std::string &route_to, SocketAddress &out);

// Of a listener, for PeerAddress::address: "HOST PORT". The scope of a link-local address means something on
// this machine only, so it is left out.
std::string host_and_port(const SocketAddress &listener);
// The other way. `own`: where this process listens, for the scope. CONNECT_FAILED: `text` is no such line.
Status parse_host_and_port(std::string_view text, const SocketAddress &own, SocketAddress &out);

}  // namespace dicomm
