#include "coll/groups.h"

#include <utility>

namespace dicomm::coll {

namespace {

// Large enough that messages cost little beside their bytes, small enough that a few of them fit into a
// core's cache and that the first and the last, with which not everybody can help, are a small part of the
// whole.
constexpr uint64_t kPieceBytes = 256 << 10;
// A library's call costs more than a message, and a copy from a chip too.
constexpr uint64_t kLibraryPieceBytes = 512 << 10;
constexpr uint64_t kMostPieces = 1024;  // then they get larger, so that schedules stay short

uint64_t piece_bytes(const Groups &groups) {
  return groups.any_by_library() ? kLibraryPieceBytes : kPieceBytes;
}

uint64_t ceil_div(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

// Where part i of `parts` nearly equal ones of `count` elements begins, as in Blocks.
uint64_t begin_of(uint64_t count, uint64_t parts, uint64_t i) {
  return count / parts * i + std::min(i, count % parts);
}

}  // namespace

Groups::Groups(std::vector<int> group_of_rank, std::vector<bool> by_library, std::vector<bool> helps)
    : of_(std::move(group_of_rank)), by_library_(std::move(by_library)), helps_(std::move(helps)) {
  for (size_t rank = 0; rank < of_.size(); ++rank) {
    const size_t group = static_cast<size_t>(of_[rank]);
    if (group >= members_.size()) members_.resize(group + 1);
    members_[group].push_back(static_cast<int>(rank));
  }
}

int Groups::largest() const {
  size_t most = 0;
  for (const auto &members : members_) most = std::max(most, members.size());
  return static_cast<int>(most);
}

std::vector<int> Groups::list(bool helping) const {
  std::vector<int> groups;
  for (int group = 0; group < size(); ++group) {
    if (helps(group) == helping) groups.push_back(group);
  }
  return groups;
}

Groups hosts_of(const Topology &topology) {
  std::vector<int> group_of_rank;
  for (const RankInfo &rank : topology.ranks) group_of_rank.push_back(rank.host_index);
  return Groups(std::move(group_of_rank));
}

Groups islands_of(const Topology &topology) {
  std::vector<std::pair<int, int>> places;  // island, or host
  std::vector<int> sizes(static_cast<size_t>(topology.islands()));
  for (const RankInfo &rank : topology.ranks) ++sizes[static_cast<size_t>(rank.island_index)];
  std::vector<bool> by_library;
  for (const RankInfo &rank : topology.ranks) {
    const bool library = !rank.chip.library.empty();
    places.emplace_back(library ? rank.island_index : -1, library ? -1 : rank.host_index);
  }
  const std::vector<int> group_of_rank = number_in_order(places);
  for (size_t r = 0; r < places.size(); ++r) {
    if (group_of_rank[r] < static_cast<int>(by_library.size())) continue;
    by_library.push_back(places[r].first >= 0 && sizes[static_cast<size_t>(places[r].first)] > 1);
  }
  return Groups(group_of_rank, by_library);
}

namespace {

Groups parties(const Topology &topology, bool by_island) {
  enum Kind { island, workers, reducers };
  const bool several = topology.hosts() > 1;
  std::vector<std::pair<Kind, int>> places;
  for (const RankInfo &rank : topology.ranks) {
    const int alone = static_cast<int>(places.size());
    if (by_island && !rank.helps() && !rank.chip.library.empty()) {
      places.emplace_back(island, rank.island_index);
    } else {
      places.emplace_back(rank.helps() ? reducers : workers, several ? rank.host_index : alone);
    }
  }
  const std::vector<int> group_of_rank = number_in_order(places);
  std::vector<bool> by_library, helps;
  for (size_t r = 0; r < places.size(); ++r) {
    if (group_of_rank[r] < static_cast<int>(helps.size())) continue;
    const auto members = std::count(places.begin(), places.end(), places[r]);
    by_library.push_back(places[r].first == island && members > 1);
    helps.push_back(places[r].first == reducers);
  }
  return Groups(group_of_rank, by_library, helps);
}

}  // namespace

Groups parties_of(const Topology &topology) { return parties(topology, false); }
Groups island_parties_of(const Topology &topology) { return parties(topology, true); }

Groups one_group(int ranks) { return Groups(std::vector<int>(static_cast<size_t>(ranks), 0)); }

// Consecutive rows have the same driver as far as possible: a rank then meets few others.
int Piece::driver(const Groups &groups, int group) const {
  if (group == home) return rank;
  const std::vector<int> &members = groups.members(group);
  return members[static_cast<size_t>(row) * members.size() / static_cast<size_t>(rows)];
}

Pieces cut_evenly(const Groups &groups, const std::vector<int> &homes, uint64_t count, size_t element,
                  uint64_t first) {
  const uint64_t n = homes.size();
  const uint64_t drivers = static_cast<uint64_t>(groups.largest());
  const uint64_t wanted = ceil_div(count * element, n * drivers * piece_bytes(groups));
  const uint64_t each = std::clamp<uint64_t>(wanted, 1, std::max<uint64_t>(kMostPieces / (n * drivers), 1));
  const uint64_t rows = each * drivers;
  Pieces pieces;
  pieces.largest = ceil_div(count, n * rows);
  pieces.list.reserve(n * rows);
  for (uint64_t j = 0; j < each; ++j) {
    for (uint64_t d = 0; d < drivers; ++d) {
      for (uint64_t h = 0; h < n; ++h) {
        const uint64_t row = d * each + j;
        const uint64_t begin = begin_of(count, n * rows, h * rows + row);
        const uint64_t end = begin_of(count, n * rows, h * rows + row + 1);
        const auto &members = groups.members(homes[h]);
        const int rank = members[row * members.size() / rows];
        pieces.list.push_back(
            {first + begin, end - begin, homes[h], rank, static_cast<int>(row), static_cast<int>(rows)});
      }
    }
  }
  return pieces;
}

Pieces cut_blocks(const Groups &groups, const std::vector<uint64_t> &counts, size_t element) {
  const Blocks blocks(counts);
  const uint64_t room =
      std::max({ceil_div(blocks.total(), kMostPieces), piece_bytes(groups) / element, uint64_t{1}});
  const size_t size = counts.size();
  std::vector<uint64_t> cuts(size);
  std::vector<int> first(size), rows(static_cast<size_t>(groups.size()));
  for (size_t r = 0; r < size; ++r) {
    cuts[r] = std::max<uint64_t>(ceil_div(counts[r], room), 1);
    int &home_rows = rows[static_cast<size_t>(groups.of(static_cast<int>(r)))];
    first[r] = home_rows;
    home_rows += static_cast<int>(cuts[r]);
  }
  Pieces pieces;
  const uint64_t most = *std::max_element(cuts.begin(), cuts.end());
  for (uint64_t j = 0; j < most; ++j) {
    for (size_t r = 0; r < size; ++r) {
      if (j >= cuts[r]) continue;
      const int rank = static_cast<int>(r);
      const int home = groups.of(rank);
      const uint64_t begin = begin_of(counts[r], cuts[r], j);
      const uint64_t end = begin_of(counts[r], cuts[r], j + 1);
      pieces.list.push_back({blocks.offset(rank) + begin, end - begin, home, rank,
                             first[r] + static_cast<int>(j), rows[static_cast<size_t>(home)]});
      pieces.largest = std::max(pieces.largest, end - begin);
    }
  }
  return pieces;
}

}  // namespace dicomm::coll
