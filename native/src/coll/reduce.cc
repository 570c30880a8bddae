#include "coll/team.h"

namespace dicomm::coll {

Schedule reduce_binomial(const Problem &problem, const Topology &) {
  Schedule schedule;
  const Team team = everybody(problem, problem.root);
  Slots partial(schedule, Space::acc, problem.count, 1);
  Fold sum(schedule, partial);
  sum.add({{Space::input, 0, problem.count}});
  tree_reduce(schedule, team, {}, problem.count, sum);
  if (team.me == 0) sum.end({Space::output, 0, problem.count}, true);
  return schedule;
}

}  // namespace dicomm::coll
