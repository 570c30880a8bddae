#include "coll/team.h"

namespace dicomm::coll {

Schedule barrier_direct(const Problem &problem, const Topology &) {
  Schedule schedule;
  for (int i = 1; i < problem.size; ++i) {
    schedule.recv(wrap(problem.rank - i, problem.size), kNothing);
    schedule.send(wrap(problem.rank + i, problem.size), kNothing);
  }
  return schedule;
}

Schedule barrier_dissemination(const Problem &problem, const Topology &) {
  Schedule schedule;
  dissemination(schedule, everybody(problem), {});
  return schedule;
}

Schedule barrier_tree(const Problem &problem, const Topology &) {
  Schedule schedule;
  const Team team = everybody(problem);
  tree_broadcast(schedule, team, kNothing, tree_arrive(schedule, team));
  return schedule;
}

}  // namespace dicomm::coll
