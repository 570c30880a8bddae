#include "topology/topology.h"

#include <algorithm>
#include <tuple>

namespace dicomm {

namespace {

constexpr size_t kNamed = 8;  // of the ranks that a message is about

std::string name_ranks(const Topology &topology, const std::vector<int> &ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < std::min(ranks.size(), kNamed); ++i) {
    text +=
        concat(i == 0 ? "" : ", ", ranks[i], " (", topology.ranks[static_cast<size_t>(ranks[i])].host, ")");
  }
  return ranks.size() > kNamed ? concat(text, " and ", ranks.size() - kNamed, " more") : text;
}

// What ranks without a word of the user's go by. A rank's chip is held against the first of each kind, so
// that compatible() alone says what goes together.
std::vector<int> kinds_of(const std::vector<RankInfo> &ranks) {
  std::vector<const ChipInfo *> kinds;
  std::vector<int> out;
  for (const RankInfo &rank : ranks) {
    const auto same = [&](const ChipInfo *kind) { return compatible(*kind, rank.chip); };
    const auto found = std::find_if(kinds.begin(), kinds.end(), same);
    out.push_back(static_cast<int>(found - kinds.begin()));
    if (found == kinds.end()) kinds.push_back(&rank.chip);
  }
  return out;
}

Status refuse_mixed(const Topology &topology, const std::vector<int> &members,
                    const std::vector<int> &kinds) {
  std::map<int, std::vector<int>> by_kind;
  for (const int r : members) by_kind[kinds[static_cast<size_t>(r)]].push_back(r);
  if (by_kind.size() == 1) return {};
  std::string text;
  for (const auto &[kind, ranks] : by_kind) {
    const ChipInfo &chip = topology.ranks[static_cast<size_t>(ranks.front())].chip;
    text += concat(text.empty() ? "" : ", ", describe(chip), " on ", name_ranks(topology, ranks));
  }
  const std::string &word = topology.ranks[static_cast<size_t>(members.front())].chip.island;
  return Status::make(DICOMM_INVALID_ARGUMENT, "island '", word, "' would hold ", text,
                      "; one library of one version must serve an island, so give these ranks different "
                      "island words (DICOMM_ISLAND), or none");
}

Status refuse_shared(const Topology &topology, const std::vector<int> &members) {
  std::map<std::string, std::vector<int>> users;
  for (const int r : members) {
    const std::string &id = topology.ranks[static_cast<size_t>(r)].chip.id;
    if (!id.empty()) users[id].push_back(r);
  }
  for (const auto &[id, ranks] : users) {
    if (ranks.size() == 1) continue;
    const ChipInfo &chip = topology.ranks[static_cast<size_t>(ranks.front())].chip;
    return Status::make(
        DICOMM_INVALID_ARGUMENT, name_ranks(topology, ranks), " use one chip, ", chip.vendor, " ", id,
        ", which ", chip.library.empty() ? "a vendor's library" : chip.library,
        " refuses within an island; give each rank a chip of its own (DICOMM_DEVICE_INDEX), or "
        "an island of its own (DICOMM_ISLAND)");
  }
  return {};
}

template <class Member>
void renumber(Topology &topology, Member member) {
  std::vector<int> old;
  for (const RankInfo &rank : topology.ranks) old.push_back(rank.*member);
  const std::vector<int> numbers = number_in_order(old);
  for (size_t r = 0; r < numbers.size(); ++r) topology.ranks[r].*member = numbers[r];
}

}  // namespace

int Topology::hosts() const {
  int last = -1;
  for (const RankInfo &rank : ranks) last = std::max(last, rank.host_index);
  return last + 1;
}

int Topology::islands() const {
  int last = -1;
  for (const RankInfo &rank : ranks) last = std::max(last, rank.island_index);
  return last + 1;
}

Topology flat_topology(int size) {
  RankInfo rank;
  rank.host = "localhost";
  return Topology{std::vector<RankInfo>(static_cast<size_t>(size), rank)};
}

Topology topology_of_hosts(const std::vector<int> &host_of_rank) {
  Topology topology = flat_topology(static_cast<int>(host_of_rank.size()));
  const std::vector<int> numbers = number_in_order(host_of_rank);
  for (size_t r = 0; r < numbers.size(); ++r) {
    topology.ranks[r].host_index = numbers[r];
    topology.ranks[r].host = "host" + std::to_string(numbers[r]);
  }
  return topology;
}

Status form_islands(Topology &topology) {
  const std::vector<int> kinds = kinds_of(topology.ranks);
  std::vector<std::tuple<std::string, int, bool>> keys;
  for (size_t r = 0; r < kinds.size(); ++r) {
    const std::string &word = topology.ranks[r].chip.island;
    keys.emplace_back(word, word.empty() ? kinds[r] : -1, topology.ranks[r].helps());
  }
  const std::vector<int> numbers = number_in_order(keys);
  std::map<int, std::vector<int>> members;
  for (size_t r = 0; r < numbers.size(); ++r) members[numbers[r]].push_back(static_cast<int>(r));
  for (const auto &[island, ranks] : members) {
    DICOMM_TRY(refuse_mixed(topology, ranks, kinds));
    DICOMM_TRY(refuse_shared(topology, ranks));
  }
  for (size_t r = 0; r < numbers.size(); ++r) topology.ranks[r].island_index = numbers[r];
  return {};
}

Topology part_of(const Topology &topology, const std::vector<int> &ranks) {
  Topology part;
  for (const int r : ranks) part.ranks.push_back(topology.ranks[static_cast<size_t>(r)]);
  renumber(part, &RankInfo::host_index);
  renumber(part, &RankInfo::island_index);
  return part;
}

}  // namespace dicomm
