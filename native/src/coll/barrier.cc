#include "coll/build.h"

namespace dicomm::coll {

namespace {

constexpr Span kNothing{Space::stage, 0, 0};

}  // namespace

// After the round of distance d a rank has heard, directly or not, from the 2d - 1 ranks before it.
Schedule barrier_dissemination(const Problem &problem, const Topology &) {
  Schedule schedule;
  Schedule::After heard;
  for (int distance = 1; distance < problem.size; distance *= 2) {
    schedule.send(wrap(problem.rank + distance, problem.size), kNothing, heard);
    heard.push_back(schedule.recv(wrap(problem.rank - distance, problem.size), kNothing));
  }
  return schedule;
}

Schedule barrier_tree(const Problem &problem, const Topology &) {
  Schedule schedule;
  Schedule::After arrived;
  std::vector<int> children;
  int mask = 1;
  for (; mask < problem.size && (problem.rank & mask) == 0; mask *= 2) {
    if (problem.rank + mask >= problem.size) continue;
    children.push_back(problem.rank + mask);
    arrived.push_back(schedule.recv(children.back(), kNothing));
  }
  if (problem.rank != 0) {
    const int parent = problem.rank - mask;
    schedule.send(parent, kNothing, arrived);
    arrived = {schedule.recv(parent, kNothing)};
  }
  for (auto child = children.rbegin(); child != children.rend(); ++child) {
    schedule.send(*child, kNothing, arrived);
  }
  return schedule;
}

}  // namespace dicomm::coll
