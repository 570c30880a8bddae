#include "topology/topology.h"

#include <algorithm>

namespace dicomm {

int Topology::hosts() const {
  int last = -1;
  for (const RankInfo &rank : ranks) last = std::max(last, rank.host_index);
  return last + 1;
}

Topology flat_topology(int size) {
  RankInfo rank;
  rank.host = "localhost";
  rank.vendor = "cpu";
  return Topology{std::vector<RankInfo>(static_cast<size_t>(size), rank)};
}

Topology topology_of_hosts(const std::vector<int> &host_of_rank) {
  Topology topology = flat_topology(static_cast<int>(host_of_rank.size()));
  std::vector<int> seen;
  for (size_t r = 0; r < host_of_rank.size(); ++r) {
    const auto found = std::find(seen.begin(), seen.end(), host_of_rank[r]);
    topology.ranks[r].host_index = static_cast<int>(found - seen.begin());
    if (found == seen.end()) seen.push_back(host_of_rank[r]);
    topology.ranks[r].host = "host" + std::to_string(topology.ranks[r].host_index);
  }
  return topology;
}

}  // namespace dicomm
