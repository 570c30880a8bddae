// The transports of this build: registry.cc is the only file that names the classes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace dicomm {

struct TransportOptions {
  // Who we are; key is what our own listener asks for. address is ignored.
  PeerAddress self;
  std::string interface;  // "" or the name of an interface or a numeric address to listen on
  std::string route_to;   // "" or a host: listen on the address that reaches it
  // "" or the paths to use, best first, separated by '>' or ',': shm, rdma-direct, rdma-staged, tcp. A
  // process reaches itself in any case.
  std::string paths;
  std::string rdma;                                   // see parse_verbs_settings
  std::function<void(const std::string &)> log = {};  // of what users should know; one line
  // What users call the process that has a Context, for log lines: "rank 3 alpha@host1". "" while unknown.
  std::function<std::string(const ContextId &)> name_of = {};
  uint32_t sockets_per_peer = 1;
  Nanos handshake_timeout = 5 * kSecond;  // for strangers at our listener
  Nanos connect_timeout = 10 * kSecond;   // from endpoint() to an authenticated connection
};

using Transports = std::vector<std::unique_ptr<Transport>>;

// Best first. INVALID_ARGUMENT names what is wrong with the options; NOT_SUPPORTED says why none of the paths
// can be had: one of several that cannot is left out. The reactor and the sink must outlive the transports.
Status make_transports(Reactor &reactor, Sink &sink, const TransportOptions &options, Transports &out);
// PeerAddress::address of this process: a line per transport.
std::string addresses(const Transports &transports);
// The numeric address at which other hosts reach this process; "" where there is none.
std::string numeric_address(const Transports &transports);
// The first that reaches the peer; null when none does.
Transport *choose_transport(const Transports &transports, const PeerAddress &peer);
// Equal for two processes that can share memory: their place for shm, or the name of their host where one of
// them does not offer shm.
std::string place_of(const PeerAddress &peer);
// Does every one of them reach every other through shared memory first?
bool share_memory(const std::vector<PeerAddress> &peers);
// Names of what make_transports can make, for dicomm_build_info.
std::vector<std::string> transport_names();

}  // namespace dicomm
