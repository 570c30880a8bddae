// Which of this machine's addresses the listener binds.
#pragma once

#include <string>

#include "base/net.h"

namespace dicomm {

// `interface` (a name or a numeric address) if given; else the local address from which `route_to` is reached
// (asks the routing table, no packet leaves); else the first interface that is up and neither loopback nor a
// container or virtual machine bridge; else loopback. Port 0. INVALID_ARGUMENT lists what there is.
Status choose_address(const std::string &interface, const std::string &route_to, SocketAddress &out);

}  // namespace dicomm
