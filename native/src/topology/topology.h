// Topology: what each rank has, and the hosts and islands that follow. Pure data.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "topology/chip.h"

namespace dicomm {

struct Nic {
  std::string name;
  std::string kind;     // "ethernet", "infiniband", "roce"
  uint32_t mbit_s = 0;  // 0: the driver does not say
  int32_t numa = -1;    // -1: not known
  bool operator==(const Nic &) const = default;
};

struct RankInfo {
  std::string host;     // name, for people
  std::string version;  // dicomm's
  int32_t numa = -1;    // the node all of the process's processors are on; -1: several, or not known
  std::vector<Nic> nics;
  ChipInfo chip;
  int host_index = 0;    // ranks with equal index can share memory; numbered in order of first rank
  int island_index = 0;  // ranks with equal index are one vendor library's; numbered in order of first rank
  bool operator==(const RankInfo &) const = default;
  bool helps() const { return chip.role == "reducer"; }
};

struct Topology {
  std::vector<RankInfo> ranks;
  int size() const { return static_cast<int>(ranks.size()); }
  int hosts() const;
  int islands() const;
};

// Equal words, equal numbers: 0 for the first word, then one more for each that is new.
template <class Word>
std::vector<int> number_in_order(const std::vector<Word> &words) {
  std::map<Word, int> numbers;
  std::vector<int> out;
  for (const Word &word : words) {
    out.push_back(numbers.emplace(word, static_cast<int>(numbers.size())).first->second);
  }
  return out;
}

// `size` ranks on one host.
Topology flat_topology(int size);
// Rank r on host host_of_rank[r], whatever the numbers; host_index counts them in order of first rank.
Topology topology_of_hosts(const std::vector<int> &host_of_rank);

// Sets every island_index: ranks with equal ChipInfo::island words share an island, and so do ranks without a
// word whose chips are compatible; but reducers none with workers, whose library must do without them.
// INVALID_ARGUMENT, with a sentence that names ranks and hosts, when a word joins chips that no library
// serves together, or an island has the same chip twice.
Status form_islands(Topology &topology);

// The given ranks in that order, with hosts and islands numbered anew.
Topology part_of(const Topology &topology, const std::vector<int> &ranks);

// JSON object: ranks, a list of what each has.
std::string to_json(const Topology &topology);

}  // namespace dicomm
