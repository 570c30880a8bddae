#include "coll/helping.h"

#include <utility>

namespace dicomm::coll {

namespace {

// Of a buffer: part / whole.
struct Share {
  uint64_t part = 0, whole = 1;
  // The arithmetic stays within 64 bits: both are at most about the square of the number of ranks.
  uint64_t of(uint64_t count) const { return count / whole * part + count % whole * part / whole; }
};

Pieces cut(const Groups &groups, const std::vector<int> &homes, Share helped, const Problem &problem) {
  const std::vector<int> reducers = groups.helping();
  if (helped.part == 0) return cut_evenly(groups, homes, problem.count, problem.element);
  if (helped.part == helped.whole) return cut_evenly(groups, reducers, problem.count, problem.element);
  const uint64_t count = helped.of(problem.count);
  const Pieces theirs = cut_evenly(groups, reducers, count, problem.element);
  const Pieces own = cut_evenly(groups, homes, problem.count - count, problem.element, count);
  Pieces all;
  all.largest = std::max(theirs.largest, own.largest);
  const size_t a = theirs.list.size(), b = own.list.size();
  for (size_t i = 0, j = 0; i < a || j < b;) {  // in proportion, so that nobody waits for its first one
    const bool take_theirs = j == b || (i < a && (2 * i + 1) * b <= (2 * j + 1) * a);
    all.list.push_back(take_theirs ? theirs.list[i++] : own.list[j++]);
  }
  return all;
}

}  // namespace

// A group of workers that has y of the sums to make sends and receives 1 - y, and y for each other group; a
// group of reducers that has x receives and sends x for each group of workers. Equal loads, and all of the
// buffer given out: k x = 2 k (n - 1) / (n n + k n - 2 k). With as many reducers as workers they make all.
Pieces cut_for_allreduce(const Groups &groups, const Problem &problem) {
  const std::vector<int> workers = groups.working();
  const uint64_t n = workers.size(), k = groups.helping().size();
  Share helped;
  if (n > 1 && k >= n) helped = {1, 1};
  if (n > 1 && k > 0 && k < n) helped = {2 * k * (n - 1), n * n + k * n - 2 * k};
  return cut(groups, workers, helped, problem);
}

// The root's group receives everything in any case. Of the other m groups of workers, one that has y of the
// sums to make receives (m - 1) y and sends 1; a group of reducers that has x receives m x, so x is 1 / m at
// most. Where only one group sends there is nothing to sum up on the way.
Pieces cut_for_reduce(const Groups &groups, const Problem &problem) {
  std::vector<int> workers = groups.working();
  const int root = groups.of(problem.root);
  if (workers.size() > 1) std::erase(workers, root);
  const uint64_t m = groups.working().size() - 1, k = groups.helping().size();
  const Share helped = m < 2 ? Share{} : Share{std::min(k, m), m};
  return cut(groups, workers, helped, problem);
}

void tell_reducers(Schedule &schedule, const Groups &groups, const Pieces &pieces, int rank) {
  const auto with_reducer = [&](const Piece &piece) { return groups.helps(piece.home); };
  if (std::any_of(pieces.list.begin(), pieces.list.end(), with_reducer)) return;  // then each has some
  std::vector<int> workers, reducers;
  for (int group = 0; group < groups.size(); ++group) {
    std::vector<int> &list = groups.helps(group) ? reducers : workers;
    list.insert(list.end(), groups.members(group).begin(), groups.members(group).end());
  }
  const Span nothing{Space::stage, 0, 0};
  for (size_t i = 0; i < reducers.size(); ++i) {
    const int worker = workers[i % workers.size()];
    if (rank == worker) schedule.send(reducers[i], nothing);
    if (rank == reducers[i]) schedule.recv(worker, nothing);
  }
}

}  // namespace dicomm::coll
