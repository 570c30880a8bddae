#include "path/libraries.h"

namespace dicomm {

namespace {

// avg and premul_sum are sums to a library: the rest is done before and after it.
size_t asked_of_library(dicomm_reduce reduce) {
  const bool sum = reduce == DICOMM_AVG || reduce == DICOMM_PREMUL_SUM;
  return static_cast<size_t>(sum ? DICOMM_SUM : reduce);
}

}  // namespace

LibrarySet::LibrarySet(const Topology &topology) {
  std::vector<int> sizes(static_cast<size_t>(topology.islands()));
  for (const RankInfo &rank : topology.ranks) {
    if (!rank.chip.library.empty()) ++sizes[static_cast<size_t>(rank.island_index)];
  }
  common_.reduces.fill(~uint64_t{0});
  common_.send_recv = common_.converts = true;
  bool several = false;
  for (const RankInfo &rank : topology.ranks) {
    without_chip_ = without_chip_ || rank.chip.library.empty();
    if (sizes[static_cast<size_t>(rank.island_index)] < 2) continue;
    several = true;
    for (size_t op = 0; op < kReduces; ++op) common_.reduces[op] &= rank.chip.reduces[op];
    common_.send_recv = common_.send_recv && rank.chip.send_recv;
    common_.converts = common_.converts && rank.chip.converts;
  }
  if (several) kind_ = topology.islands() == 1 ? Problem::Libraries::one : Problem::Libraries::several;
}

Problem::Libraries LibrarySet::use(dicomm_opcode op, dicomm_dtype accumulation, dicomm_reduce reduce,
                                   bool widened, bool scaled) const {
  constexpr auto kNone = Problem::Libraries::none;
  const bool one = kind_ == Problem::Libraries::one;
  switch (op) {
    case DICOMM_ALLREDUCE:
    case DICOMM_REDUCE:
    case DICOMM_REDUCE_SCATTER: {
      const bool reduces = common_.reduces[asked_of_library(reduce)] >> accumulation & 1;
      const bool converts = widened || scaled || (one && reduce == DICOMM_AVG);
      return reduces && (common_.converts || !converts) ? kind_ : kNone;
    }
    case DICOMM_BROADCAST:
    case DICOMM_ALLGATHER:
      return kind_;
    case DICOMM_ALLTOALL:
    case DICOMM_GATHER:
    case DICOMM_SCATTER:
      return one && common_.send_recv ? kind_ : kNone;
    default:
      return kNone;
  }
}

}  // namespace dicomm
