#include "topology/topology.h"

namespace dicomm {

Topology flat_topology(int size) {
  RankInfo rank;
  rank.host = "localhost";
  rank.vendor = "cpu";
  return Topology{std::vector<RankInfo>(static_cast<size_t>(size), rank)};
}

}  // namespace dicomm
