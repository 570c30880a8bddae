#include "coll/build.h"

namespace dicomm::coll {

Schedule gather_direct(const Problem &problem, const Topology &) {
  Schedule schedule;
  const Blocks blocks(problem.counts);
  const Span own{Space::input, 0, blocks.count(problem.rank)};
  if (problem.rank != problem.root) {
    schedule.send(problem.root, own);
    return schedule;
  }
  for (int i = 1; i < problem.size; ++i) {
    const int from = wrap(problem.rank + i, problem.size);
    schedule.recv(from, blocks.in(Space::output, from));
  }
  schedule.copy(blocks.in(Space::output, problem.rank), own, false);
  return schedule;
}

// Ranks are numbered from the root, v = rank - root. v's subtree is v .. v + lowest bit of v - 1 and its
// blocks travel together, in that order.
Schedule gather_binomial(const Problem &problem, const Topology &) {
  Schedule schedule;
  const int size = problem.size;
  const int root = problem.root;
  const int v = wrap(problem.rank - root, size);
  const auto rank_of = [&](int w) { return wrap(w + root, size); };
  const Blocks places(problem.counts);
  std::vector<uint64_t> rotated;
  for (int w = 0; w < size; ++w) rotated.push_back(places.count(rank_of(w)));
  const Blocks order(rotated);
  const Span own{Space::input, 0, order.count(v)};

  int mask = 1;
  while (mask < size && (v & mask) == 0) mask *= 2;
  const int subtree = v == 0 ? size : std::min(mask, size - v);
  const bool leaf = subtree == 1;
  if (v != 0 && leaf) {
    schedule.send(rank_of(v - mask), own);
    return schedule;
  }
  const auto staged = [&](int first, int n) {
    return Span{Space::stage, order.offset(first) - order.offset(v), order.range(first, n)};
  };
  schedule.scratch(Space::stage) = order.range(v, subtree);
  Schedule::After here;
  if (v == 0) {
    schedule.copy(places.in(Space::output, root), own, false);
  } else {
    here.push_back(schedule.copy(staged(v, 1), own, false));
  }
  for (int m = 1; m < mask && v + m < size; m *= 2) {
    const int child = v + m;
    const int n = std::min(m, size - child);
    const int first = rank_of(child);
    const int before_wrap = std::min(n, size - first);
    if (v == 0 && before_wrap == n) {  // consecutive in output too
      schedule.recv(first, {Space::output, places.offset(first), order.range(child, n)});
      continue;
    }
    const uint32_t arrived = schedule.recv(first, staged(child, n));
    here.push_back(arrived);
    if (v != 0) continue;
    const int after_wrap = n - before_wrap;
    schedule.copy({Space::output, places.offset(first), order.range(child, before_wrap)},
                  staged(child, before_wrap), false, {arrived});
    schedule.copy({Space::output, 0, order.range(child + before_wrap, after_wrap)},
                  staged(child + before_wrap, after_wrap), false, {arrived});
  }
  if (v != 0) schedule.send(rank_of(v - mask), staged(v, subtree), here);
  return schedule;
}

}  // namespace dicomm::coll
