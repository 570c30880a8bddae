// What a rank has of each memory, and how ranks are told apart.
#include "simulate_memory.h"

namespace dicomm::simulate {

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15u + b + 0x7f4a7c15u;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9u;
  return x ^ (x >> 32);
}

bool wide(const Problem &p, Space space) {
  return p.widened && (space == Space::acc || space == Space::chip_acc);
}

RankSet RankSet::of(int rank) {
  const uint64_t r = static_cast<uint64_t>(rank);
  return {mix(mix(r, 1), r), mix(mix(r, 2), r), 1};
}

uint64_t input_count(const Problem &p) {
  if (!has_data(p)) return 0;
  const size_t rank = static_cast<size_t>(p.rank);
  switch (p.op) {
    case DICOMM_ALLREDUCE:
    case DICOMM_REDUCE:
      return p.count;
    case DICOMM_ALLGATHER:
    case DICOMM_GATHER:
      return p.counts[rank];
    case DICOMM_REDUCE_SCATTER:
    case DICOMM_ALLTOALL:
      return total(p.counts);
    case DICOMM_SCATTER:
      return p.rank == p.root ? total(p.counts) : 0;
    default:
      return 0;
  }
}

uint64_t output_count(const Problem &p) {
  if (!has_data(p)) return 0;
  const size_t rank = static_cast<size_t>(p.rank);
  switch (p.op) {
    case DICOMM_BROADCAST:
    case DICOMM_ALLREDUCE:
      return p.count;
    case DICOMM_REDUCE:
      return p.rank == p.root ? p.count : 0;
    case DICOMM_ALLGATHER:
      return total(p.counts);
    case DICOMM_GATHER:
      return p.rank == p.root ? total(p.counts) : 0;
    case DICOMM_REDUCE_SCATTER:
    case DICOMM_SCATTER:
      return p.counts[rank];
    case DICOMM_ALLTOALL:
      return total(p.recv_counts);
    default:
      return 0;
  }
}

}  // namespace dicomm::simulate
