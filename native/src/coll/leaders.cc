// Small messages on two levels: up a tree to one leader per group, between the leaders in log2(groups)
// rounds, and down again. What counts is the number of rounds, above all of those between groups.
#include "coll/helping.h"
#include "coll/team.h"

namespace dicomm::coll {

namespace {

constexpr auto kNone = Schedule::kNone;

// The members of this rank's group and, for a leader, the leaders of all groups that have data. Not of a
// reducer.
struct Levels {
  // `root` leads its group, which comes first.
  Levels(const Problem &problem, const Topology &topology, int root)
      : Levels(problem, hosts_of(topology), root) {}
  Levels(const Problem &problem, const Groups &all, int root) : groups(all), group(groups.of(problem.rank)) {
    const auto leader = [&](int g) { return g == groups.of(root) ? root : groups.members(g).front(); };
    std::vector<int> leaders;
    for (const int g : groups.working()) leaders.push_back(leader(g));
    inside = team_of(groups.members(group), leader(group), problem.rank);
    across = team_of(leaders, root, problem.rank);
    for (const int leader : across.ranks) alone.push_back(groups.members(groups.of(leader)).size() == 1);
  }
  bool leads() const { return across.me >= 0; }

  Groups groups;
  int group;  // this rank's
  Team inside, across;
  Raw alone;  // by place among the leaders: its group's contribution is its input as it is
};

// A group's inputs, reduced on its leader.
struct Reduced {
  Operand sum;            // on the leader
  uint32_t sent = kNone;  // elsewhere: after it input is not read again
};

Reduced reduce_inside(Schedule &schedule, const Levels &levels, uint64_t count) {
  Slots partial(schedule, Space::acc, count, 1);
  Fold sum(schedule, partial);
  sum.add({{Space::input, 0, count}});
  const uint32_t sent = tree_reduce(schedule, levels.inside, {}, count, sum);
  if (!levels.leads()) return {{}, sent};
  Operand result = sum.end();
  result.used = nullptr;  // the slots end here
  return {result, kNone};
}

}  // namespace

Schedule barrier_leaders(const Problem &problem, const Topology &topology) {
  Schedule schedule;
  const Levels levels(problem, topology, 0);
  Schedule::After heard = tree_arrive(schedule, levels.inside);
  if (levels.leads()) heard = dissemination(schedule, levels.across, heard);
  tree_broadcast(schedule, levels.inside, kNothing, heard);
  return schedule;
}

Schedule broadcast_leaders(const Problem &problem, const Topology &topology) {
  Schedule schedule;
  const Levels levels(problem, topology, problem.root);
  const Span whole{Space::output, 0, problem.count};
  Schedule::After here;
  if (levels.leads()) here = tree_broadcast(schedule, levels.across, whole, {});
  tree_broadcast(schedule, levels.inside, whole, here);
  return schedule;
}

namespace {

void allreduce(Schedule &schedule, const Problem &problem, const Levels &levels) {
  const Span output{Space::output, 0, problem.count};
  const Reduced own = reduce_inside(schedule, levels, problem.count);
  uint32_t here = kNone;
  if (levels.leads()) here = doubling(schedule, levels.across, levels.alone, own.sum, output, true);
  tree_broadcast(schedule, levels.inside, output, {here}, own.sent);
}

void reduce(Schedule &schedule, const Problem &problem, const Levels &levels) {
  const Reduced own = reduce_inside(schedule, levels, problem.count);
  if (!levels.leads()) return;
  Slots partial(schedule, Space::acc, problem.count, 1);
  Fold sum(schedule, partial);
  sum.add(own.sum);
  tree_reduce(schedule, levels.across, levels.alone, problem.count, sum);
  if (problem.rank == problem.root) sum.end({Space::output, 0, problem.count}, true);
}

// The workers do it among themselves, and the reducers hear of it.
template <class Operation>
Schedule among_workers(const Problem &problem, const Topology &topology, Operation operation) {
  Schedule schedule;
  const Groups groups = parties_of(topology);
  const bool rooted = problem.op == DICOMM_REDUCE;
  const int first = rooted ? problem.root : groups.members(groups.working().front()).front();
  tell_reducers(schedule, groups, {}, problem.rank);
  if (problem.role != Problem::Role::reducer) operation(schedule, problem, Levels(problem, groups, first));
  return schedule;
}

}  // namespace

Schedule allreduce_leaders(const Problem &problem, const Topology &topology) {
  Schedule schedule;
  allreduce(schedule, problem, Levels(problem, topology, 0));
  return schedule;
}

Schedule reduce_leaders(const Problem &problem, const Topology &topology) {
  Schedule schedule;
  reduce(schedule, problem, Levels(problem, topology, problem.root));
  return schedule;
}

Schedule allreduce_workers(const Problem &problem, const Topology &topology) {
  return among_workers(problem, topology, allreduce);
}

Schedule reduce_workers(const Problem &problem, const Topology &topology) {
  return among_workers(problem, topology, reduce);
}

// The leaders know all results and give each member its own.
Schedule reduce_scatter_leaders(const Problem &problem, const Topology &topology) {
  Schedule schedule;
  const Levels levels(problem, topology, 0);
  const Blocks blocks(problem.counts);
  const Span output{Space::output, 0, blocks.count(problem.rank)};
  const Reduced own = reduce_inside(schedule, levels, blocks.total());
  if (!levels.leads()) {
    schedule.recv(levels.inside.rank(0), output, {own.sent});
    return schedule;
  }
  const Span sums{Space::acc, schedule.scratch(Space::acc), blocks.total()};
  schedule.scratch(Space::acc) += blocks.total();
  const uint32_t here = doubling(schedule, levels.across, levels.alone, own.sum, sums, false);
  for (const int member : levels.inside.ranks) {
    const Span sum = part(sums, blocks.offset(member), blocks.count(member));
    if (member == problem.rank) {
      schedule.copy(output, sum, true, {here});
      continue;
    }
    const Span result{Space::stage, schedule.scratch(Space::stage), sum.count};
    schedule.scratch(Space::stage) += sum.count;
    schedule.send(member, result, {schedule.copy(result, sum, true, {here})});
  }
  return schedule;
}

// Blocks gather in stage in the order of the groups, the own one first, and in each in rank order; every rank
// moves them to their places at the end.
Schedule allgather_leaders(const Problem &problem, const Topology &topology) {
  Schedule schedule;
  const Levels levels(problem, topology, 0);
  const Groups &groups = levels.groups;
  const Blocks places(problem.counts);
  std::vector<uint64_t> of_group;
  std::vector<int> order;  // ranks as their blocks lie in stage
  for (int i = 0; i < groups.size(); ++i) {
    uint64_t count = 0;
    for (const int member : groups.members(wrap(levels.group + i, groups.size()))) {
      count += places.count(member);
      order.push_back(member);
    }
    of_group.push_back(count);
  }
  const Span all{Space::stage, 0, places.total()};
  schedule.scratch(Space::stage) = all.count;
  const Span own{Space::input, 0, places.count(problem.rank)};
  const int leader = levels.inside.rank(0);
  Schedule::After here;
  uint32_t read = kNone;
  if (levels.leads()) {
    uint64_t at = 0;
    for (const int member : groups.members(levels.group)) {
      const Span block{Space::stage, at, places.count(member)};
      here.push_back(member == leader ? schedule.copy(block, own, false) : schedule.recv(member, block));
      at += block.count;
    }
    here = bruck(schedule, levels.across, Blocks(of_group), here);
  } else {
    read = schedule.send(leader, own);
  }
  here = tree_broadcast(schedule, levels.inside, all, here);
  here.push_back(read);  // output may be the memory of input
  uint64_t at = 0;
  for (size_t i = 0; i < order.size();) {  // blocks that are neighbours in both places move together
    size_t next = i + 1;
    while (next < order.size() && order[next] == order[next - 1] + 1) ++next;
    const int first = order[i];
    const uint64_t count = places.range(first, static_cast<int>(next - i));
    schedule.copy({Space::output, places.offset(first), count}, {Space::stage, at, count}, false, here);
    at += count;
    i = next;
  }
  return schedule;
}

}  // namespace dicomm::coll
