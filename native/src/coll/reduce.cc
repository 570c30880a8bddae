#include "coll/team.h"

namespace dicomm::coll {

// On the root as in allreduce: in rank order, whoever it is.
Schedule reduce_gather_all(const Problem &problem, const Topology &) {
  Schedule schedule;
  const Span input{Space::input, 0, problem.count};
  if (problem.rank != problem.root) {
    schedule.send(problem.root, input);
    return schedule;
  }
  Slots inputs(schedule, Space::stage, problem.count, static_cast<size_t>(problem.size));
  Slots partial(schedule, Space::acc, problem.count, 1);
  Fold sum(schedule, partial);
  for (int r = 0; r < problem.size; ++r)
    sum.add(r == problem.rank ? Operand{input} : inputs.receive(r, problem.count));
  sum.end({Space::output, 0, problem.count}, true);
  return schedule;
}

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
