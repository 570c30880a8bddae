// Topology: what each rank has, and the hosts that follow. Pure data.
#pragma once

#include <string>
#include <vector>

namespace dicomm {

struct RankInfo {
  std::string host;    // name, for people
  std::string vendor;  // "cpu" until a device says otherwise
  int host_index = 0;  // ranks with equal index share a machine; numbered in order of first rank
};

struct Topology {
  std::vector<RankInfo> ranks;
  int size() const { return static_cast<int>(ranks.size()); }
};

// `size` ranks on one host.
Topology flat_topology(int size);

}  // namespace dicomm
