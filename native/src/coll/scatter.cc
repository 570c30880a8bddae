#include "coll/build.h"

namespace dicomm::coll {

Schedule scatter_direct(const Problem &problem, const Topology &) {
  Schedule schedule;
  const Blocks blocks(problem.counts);
  const Span own{Space::output, 0, blocks.count(problem.rank)};
  if (problem.rank != problem.root) {
    schedule.recv(problem.root, own);
    return schedule;
  }
  for (int i = 1; i < problem.size; ++i) {
    const int to = wrap(problem.rank + i, problem.size);
    schedule.send(to, blocks.in(Space::input, to));
  }
  schedule.copy(own, blocks.in(Space::input, problem.rank), false);
  return schedule;
}

// The tree and the order of gather_binomial, the other way.
Schedule scatter_binomial(const Problem &problem, const Topology &) {
  Schedule schedule;
  const int size = problem.size;
  const int root = problem.root;
  const int v = wrap(problem.rank - root, size);
  const auto rank_of = [&](int w) { return wrap(w + root, size); };
  const Blocks places(problem.counts);
  std::vector<uint64_t> rotated;
  for (int w = 0; w < size; ++w) rotated.push_back(places.count(rank_of(w)));
  const Blocks order(rotated);
  const Span own{Space::output, 0, order.count(v)};

  int mask = 1;
  while (mask < size && (v & mask) == 0) mask *= 2;
  const int subtree = v == 0 ? size : std::min(mask, size - v);
  const auto staged = [&](int first, int n) {
    return Span{Space::stage, order.offset(first) - order.offset(v), order.range(first, n)};
  };
  if (v != 0 && subtree == 1) {
    schedule.recv(rank_of(v - mask), own);
    return schedule;
  }
  schedule.scratch(Space::stage) = order.range(v, subtree);
  uint32_t here = Schedule::kNone;
  if (v != 0) here = schedule.recv(rank_of(v - mask), staged(v, subtree));
  for (int m = mask / 2; m > 0; m /= 2) {  // the largest subtree first
    const int child = v + m;
    if (child >= size) continue;
    const int n = std::min(m, size - child);
    const int first = rank_of(child);
    const int before_wrap = std::min(n, size - first);
    if (v != 0) {
      schedule.send(first, staged(child, n), {here});
    } else if (before_wrap == n) {  // consecutive in input too
      schedule.send(first, {Space::input, places.offset(first), order.range(child, n)});
    } else {
      const int after_wrap = n - before_wrap;
      const uint32_t head =
          schedule.copy(staged(child, before_wrap),
                        {Space::input, places.offset(first), order.range(child, before_wrap)}, false);
      const uint32_t tail =
          schedule.copy(staged(child + before_wrap, after_wrap),
                        {Space::input, 0, order.range(child + before_wrap, after_wrap)}, false);
      schedule.send(first, staged(child, n), {head, tail});
    }
  }
  schedule.copy(own, v == 0 ? places.in(Space::input, root) : staged(v, 1), false, {here});
  return schedule;
}

}  // namespace dicomm::coll
