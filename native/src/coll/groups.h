// Who works together, and on what: ranks in groups, elements in pieces. Pure.
//
// A group is a set of ranks between which moving data is cheap: the ranks of a host, or those of an island,
// whose vendor's library moves it. Algorithms on two levels cut the buffer into pieces. For every piece one
// rank per group, its driver, speaks for the group: only drivers send to other groups, and the drivers of
// successive pieces are different ranks.
#pragma once

#include <vector>

#include "coll/build.h"

namespace dicomm::coll {

class Groups {
 public:
  // group_of_rank: numbers from 0, none left out. by_library: the groups in which a vendor's library moves
  // data. helps: those of reducers, who have no data.
  explicit Groups(std::vector<int> group_of_rank, std::vector<bool> by_library = {},
                  std::vector<bool> helps = {});
  int size() const { return static_cast<int>(members_.size()); }
  int of(int rank) const { return of_[static_cast<size_t>(rank)]; }
  const std::vector<int> &members(int group) const { return members_[static_cast<size_t>(group)]; }
  int largest() const;  // ranks of the largest group
  bool by_library(int group) const {
    return group < static_cast<int>(by_library_.size()) && by_library_[static_cast<size_t>(group)];
  }
  bool helps(int group) const { return !helps_.empty() && helps_[static_cast<size_t>(group)]; }
  std::vector<int> working() const { return list(false); }
  std::vector<int> helping() const { return list(true); }
  bool any_by_library() const {
    return std::find(by_library_.begin(), by_library_.end(), true) != by_library_.end();
  }

 private:
  std::vector<int> list(bool helping) const;

  std::vector<int> of_;
  std::vector<std::vector<int>> members_;  // in rank order
  std::vector<bool> by_library_, helps_;
};

Groups hosts_of(const Topology &topology);
// Islands that have a library, and what is left by host.
Groups islands_of(const Topology &topology);
Groups one_group(int ranks);
// For operations that reducers help with: workers by host, and reducers apart from them by host. All on one
// host: each rank alone.
Groups parties_of(const Topology &topology);
// The same, with workers that have a library by island.
Groups island_parties_of(const Topology &topology);

struct Piece {
  uint64_t offset, count;  // elements
  int home;                // the group where it is complete first
  int rank;                // home's driver
  int row, rows;           // which of the home's pieces this is
  int driver(const Groups &groups, int group) const;
};

// In the order in which they are best worked on: every rank drives one of the first few.
struct Pieces {
  std::vector<Piece> list;
  uint64_t largest = 0;  // elements
};

// The elements [first, first + count), an equal share at home in each of the groups `homes`, and of a group's
// share an equal part driven by each rank of each group.
Pieces cut_evenly(const Groups &groups, const std::vector<int> &homes, uint64_t count, size_t element,
                  uint64_t first = 0);
// Blocks one after another, counts[r] elements at home with rank r. Every rank has at least one piece.
Pieces cut_blocks(const Groups &groups, const std::vector<uint64_t> &counts, size_t element);

}  // namespace dicomm::coll
