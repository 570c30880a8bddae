// to_json: what dicomm_comm_info says of the ranks; dicomm/topology.py reads it.

#include "base/json.h"
#include "topology/topology.h"

namespace dicomm {

namespace {

std::string json(const Nic &nic) {
  return concat("{\"name\": ", json_string(nic.name), ", \"kind\": ", json_string(nic.kind),
                ", \"mbit_s\": ", nic.mbit_s, ", \"numa\": ", nic.numa, "}");
}

std::string json(const ChipInfo &chip) {
  const std::string dtypes = dtype_names(chip.dtypes, "\", \"");
  return concat(
      "{\"vendor\": ", json_string(chip.vendor), ", \"name\": ", json_string(chip.name),
      ", \"arch\": ", json_string(chip.arch), ", \"library\": ", json_string(chip.library),
      ", \"library_version\": ", chip.library_version,
      ", \"library_release\": ", json_string(release_of(chip)), ", \"memory_bytes\": ", chip.memory_bytes,
      ", \"dtypes\": [", dtypes.empty() ? "" : "\"" + dtypes + "\"", "], \"index\": ", chip.index,
      ", \"id\": ", json_string(chip.id), ", \"island\": ", json_string(chip.island),
      ", \"role\": ", json_string(chip.role), ", \"simulated\": ", chip.simulated ? "true" : "false", "}");
}

std::string json(const RankInfo &rank, int number) {
  std::string nics;
  for (const Nic &nic : rank.nics) nics += (nics.empty() ? "" : ", ") + json(nic);
  return concat("{\"rank\": ", number, ", \"host\": ", json_string(rank.host),
                ", \"host_index\": ", rank.host_index, ", \"island_index\": ", rank.island_index,
                ", \"version\": ", json_string(rank.version), ", \"numa\": ", rank.numa, ", \"nics\": [",
                nics, "], \"chip\": ", json(rank.chip), "}");
}

}  // namespace

std::string to_json(const Topology &topology) {
  std::string ranks;
  for (int r = 0; r < topology.size(); ++r) {
    ranks += (r == 0 ? "" : ", ") + json(topology.ranks[static_cast<size_t>(r)], r);
  }
  return "{\"ranks\": [" + ranks + "]}";
}

}  // namespace dicomm
