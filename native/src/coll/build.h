// What the algorithms share: cutting buffers into parts, and the names of their builders.
#pragma once

#include <algorithm>
#include <vector>

#include "coll/schedule.h"

namespace dicomm::coll {

inline Span part(Span whole, uint64_t offset, uint64_t count) {
  return {whole.space, whole.offset + offset, count};
}

// Consecutive parts of a space: block i lies at [offset[i], offset[i + 1]).
class Blocks {
 public:
  explicit Blocks(const std::vector<uint64_t> &counts) : offset_(counts.size() + 1) {
    for (size_t i = 0; i < counts.size(); ++i) offset_[i + 1] = offset_[i] + counts[i];
  }
  // `count` elements cut into `parts` nearly equal blocks; the first ones get one more.
  Blocks(uint64_t count, int parts) : offset_(static_cast<size_t>(parts) + 1) {
    const uint64_t n = static_cast<uint64_t>(parts);
    for (uint64_t i = 0; i < n; ++i) offset_[i + 1] = offset_[i] + count / n + (i < count % n ? 1 : 0);
  }
  int size() const { return static_cast<int>(offset_.size()) - 1; }
  uint64_t offset(int i) const { return offset_[static_cast<size_t>(i)]; }
  uint64_t count(int i) const { return range(i, 1); }
  uint64_t range(int first, int n) const { return offset(first + n) - offset(first); }
  uint64_t total() const { return offset_.back(); }
  uint64_t largest() const {
    uint64_t most = 0;
    for (int i = 0; i < size(); ++i) most = std::max(most, count(i));
    return most;
  }
  Span in(Space space, int i) const { return {space, offset(i), count(i)}; }

 private:
  std::vector<uint64_t> offset_;
};

// Large messages are cut so that receiving, reducing and sending overlap: into pieces of about kChunkBytes,
// `most` at most, so that schedules stay short.
inline constexpr uint64_t kChunkBytes = 512 << 10;
inline int chunk_count(uint64_t elements, size_t element, int most) {
  const uint64_t wanted = elements * element / kChunkBytes;
  return static_cast<int>(std::clamp<uint64_t>(wanted, 1, static_cast<uint64_t>(std::max(most, 1))));
}
inline constexpr int kMostChunks = 16;

inline int wrap(int rank, int size) { return ((rank % size) + size) % size; }

// Most algorithms need data of every rank.
inline bool always(const Problem &problem) { return problem.role == Problem::Role::peer; }
inline bool helped(const Problem &problem) { return problem.role != Problem::Role::peer; }
inline bool helped_islands(const Problem &problem) {
  return helped(problem) && problem.libraries == Problem::Libraries::several;
}
inline bool one_island(const Problem &problem) {
  return always(problem) && problem.libraries == Problem::Libraries::one;
}
inline bool islands(const Problem &problem) {
  return always(problem) && problem.libraries == Problem::Libraries::several;
}
inline bool even(const Problem &problem) { return !problem.uneven; }

Schedule barrier_direct(const Problem &, const Topology &);
Schedule barrier_dissemination(const Problem &, const Topology &);
Schedule barrier_leaders(const Problem &, const Topology &);
Schedule barrier_tree(const Problem &, const Topology &);
Schedule broadcast_direct(const Problem &, const Topology &);
Schedule broadcast_binomial(const Problem &, const Topology &);
Schedule broadcast_chain(const Problem &, const Topology &);
Schedule broadcast_scatter_allgather(const Problem &, const Topology &);
Schedule broadcast_leaders(const Problem &, const Topology &);
Schedule broadcast_two_level(const Problem &, const Topology &);
Schedule broadcast_islands(const Problem &, const Topology &);
Schedule broadcast_library(const Problem &, const Topology &);
Schedule allreduce_doubling(const Problem &, const Topology &);
Schedule allreduce_gather_all(const Problem &, const Topology &);
Schedule allreduce_direct(const Problem &, const Topology &);
Schedule allreduce_ring(const Problem &, const Topology &);
Schedule allreduce_leaders(const Problem &, const Topology &);
Schedule allreduce_two_level(const Problem &, const Topology &);
Schedule allreduce_islands(const Problem &, const Topology &);
Schedule allreduce_library(const Problem &, const Topology &);
Schedule allreduce_workers(const Problem &, const Topology &);
Schedule allreduce_reducers(const Problem &, const Topology &);
Schedule allreduce_reducers_islands(const Problem &, const Topology &);
Schedule reduce_gather_all(const Problem &, const Topology &);
Schedule reduce_binomial(const Problem &, const Topology &);
Schedule reduce_direct(const Problem &, const Topology &);
Schedule reduce_leaders(const Problem &, const Topology &);
Schedule reduce_two_level(const Problem &, const Topology &);
Schedule reduce_islands(const Problem &, const Topology &);
Schedule reduce_library(const Problem &, const Topology &);
Schedule reduce_workers(const Problem &, const Topology &);
Schedule reduce_reducers(const Problem &, const Topology &);
Schedule reduce_reducers_islands(const Problem &, const Topology &);
Schedule allgather_bruck(const Problem &, const Topology &);
Schedule allgather_direct(const Problem &, const Topology &);
Schedule allgather_ring(const Problem &, const Topology &);
Schedule allgather_leaders(const Problem &, const Topology &);
Schedule allgather_two_level(const Problem &, const Topology &);
Schedule allgather_islands(const Problem &, const Topology &);
Schedule allgather_library(const Problem &, const Topology &);
Schedule reduce_scatter_direct(const Problem &, const Topology &);
Schedule reduce_scatter_ring(const Problem &, const Topology &);
Schedule reduce_scatter_leaders(const Problem &, const Topology &);
Schedule reduce_scatter_two_level(const Problem &, const Topology &);
Schedule reduce_scatter_islands(const Problem &, const Topology &);
Schedule reduce_scatter_library(const Problem &, const Topology &);
Schedule alltoall_direct(const Problem &, const Topology &);
Schedule alltoall_pairwise(const Problem &, const Topology &);
Schedule alltoall_library(const Problem &, const Topology &);
Schedule gather_binomial(const Problem &, const Topology &);
Schedule gather_direct(const Problem &, const Topology &);
Schedule gather_library(const Problem &, const Topology &);
Schedule scatter_binomial(const Problem &, const Topology &);
Schedule scatter_direct(const Problem &, const Topology &);
Schedule scatter_library(const Problem &, const Topology &);

}  // namespace dicomm::coll
