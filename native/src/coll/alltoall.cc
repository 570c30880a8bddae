#include "coll/build.h"

namespace dicomm::coll {

namespace {

// Round t: give to the rank t after us, take from the rank t before. `window` rounds may be under way at
// once. Both algorithms send one message per pair of ranks, so ranks need not agree on the choice.
Schedule rounds(const Problem &problem, int window) {
  Schedule schedule;
  const int rank = problem.rank;
  const int size = problem.size;
  const Blocks out(problem.counts);
  const Blocks in(problem.recv_counts);
  std::vector<uint32_t> sends;
  std::vector<uint32_t> recvs;
  for (int t = 1; t < size; ++t) {
    const int to = wrap(rank + t, size);
    const int from = wrap(rank - t, size);
    Schedule::After after;
    if (t > window) {
      const size_t before = static_cast<size_t>(t - 1 - window);
      after = {sends[before], recvs[before]};
    }
    recvs.push_back(schedule.recv(from, in.in(Space::output, from), after));
    sends.push_back(schedule.send(to, out.in(Space::input, to), after));
  }
  schedule.copy(in.in(Space::output, rank), out.in(Space::input, rank), false);
  return schedule;
}

}  // namespace

Schedule alltoall_direct(const Problem &problem, const Topology &) { return rounds(problem, problem.size); }

Schedule alltoall_pairwise(const Problem &problem, const Topology &) { return rounds(problem, 1); }

}  // namespace dicomm::coll
