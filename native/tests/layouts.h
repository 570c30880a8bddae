// Topologies by the number of ranks on each host.
#pragma once

#include <algorithm>
#include <vector>

#include "topology/topology.h"

namespace dicomm {

// Ranks host by host.
inline Topology layout(const std::vector<int> &ranks_per_host) {
  std::vector<int> hosts;
  for (size_t host = 0; host < ranks_per_host.size(); ++host) {
    hosts.insert(hosts.end(), static_cast<size_t>(ranks_per_host[host]), static_cast<int>(host));
  }
  return topology_of_hosts(hosts);
}

// Ranks 0, 1, 2 on hosts 0, 1, 2 and so on, as long as a host has room.
inline Topology interleaved(const std::vector<int> &ranks_per_host) {
  std::vector<int> hosts;
  for (int round = 0; round < *std::max_element(ranks_per_host.begin(), ranks_per_host.end()); ++round) {
    for (size_t host = 0; host < ranks_per_host.size(); ++host) {
      if (round < ranks_per_host[host]) hosts.push_back(static_cast<int>(host));
    }
  }
  return topology_of_hosts(hosts);
}

// 1,024 ranks on hosts of 1 to 16.
inline std::vector<int> uneven_1024_hosts() {
  std::vector<int> hosts;
  int left = 1024;
  for (int i = 0; left > 0; ++i) {
    hosts.push_back(std::min(left, 1 + i * 7 % 16));
    left -= hosts.back();
  }
  return hosts;
}
inline Topology uneven_1024() { return layout(uneven_1024_hosts()); }

}  // namespace dicomm
