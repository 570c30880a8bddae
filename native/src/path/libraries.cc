#include "path/libraries.h"

#include "base/operations.h"

namespace dicomm {

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

Problem::Libraries LibrarySet::use(const Problem &problem, dicomm_dtype accumulation,
                                   dicomm_reduce reduce) const {
  constexpr auto kNone = Problem::Libraries::none;
  // A reducer cannot see either where the workers' buffers are.
  if (!problem.on_chip && !without_chip_ && problem.role == Problem::Role::peer) return kNone;
  const bool one = kind_ == Problem::Libraries::one;
  switch (problem.op) {
    case DICOMM_ALLREDUCE:
    case DICOMM_REDUCE:
    case DICOMM_REDUCE_SCATTER: {
      const auto asked = static_cast<size_t>(is_sum(reduce) ? DICOMM_SUM : reduce);
      const bool reduces = common_.reduces[asked] >> accumulation & 1;
      const bool converts = problem.widened || problem.scaled || (one && reduce == DICOMM_AVG);
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
