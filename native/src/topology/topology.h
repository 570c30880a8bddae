// Topology: what each rank has, and the hosts that follow. Pure data.
#pragma once

#include <string>
#include <vector>

namespace dicomm {

struct RankInfo {
  std::string host;    // name, for people
  std::string vendor;  // "cpu" until a device says otherwise
  int host_index = 0;  // ranks with equal index can share memory; numbered in order of first rank
};

struct Topology {
  std::vector<RankInfo> ranks;
  int size() const { return static_cast<int>(ranks.size()); }
  int hosts() const;
};

// `size` ranks on one host.
Topology flat_topology(int size);
// Rank r on host host_of_rank[r], whatever the numbers; host_index counts them in order of first rank.
Topology topology_of_hosts(const std::vector<int> &host_of_rank);

}  // namespace dicomm
