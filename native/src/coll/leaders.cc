// Small messages on two levels: up a tree to one leader per group, between the leaders in log2(groups)
// rounds, and down again. What counts is the number of rounds, above all of those between groups.
#include "coll/groups.h"
#include "coll/team.h"

namespace dicomm::coll {

namespace {

constexpr auto kNone = Schedule::kNone;

// The members of this rank's group and, for a leader, the leaders of all groups.
struct Levels {
  // `root` leads its group, which comes first.
  Levels(const Problem &problem, const Topology &topology, int root)
      : groups(hosts_of(topology)), group(groups.of(problem.rank)) {
    std::vector<int> leaders;
    for (int g = 0; g < groups.size(); ++g) {
      leaders.push_back(g == groups.of(root) ? root : groups.members(g).front());
    }
    inside = team_of(groups.members(group), leaders[static_cast<size_t>(group)], problem.rank);
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

Schedule allreduce_leaders(const Problem &problem, const Topology &topology) {
  Schedule schedule;
  const Levels levels(problem, topology, 0);
  const Span output{Space::output, 0, problem.count};
  const Reduced own = reduce_inside(schedule, levels, problem.count);
  uint32_t here = kNone;
  if (levels.leads()) here = doubling(schedule, levels.across, levels.alone, own.sum, output, true);
  tree_broadcast(schedule, levels.inside, output, {here}, own.sent);
  return schedule;
}

Schedule reduce_leaders(const Problem &problem, const Topology &topology) {
  Schedule schedule;
  const Levels levels(problem, topology, problem.root);
  const Reduced own = reduce_inside(schedule, levels, problem.count);
  if (!levels.leads()) return schedule;
  Slots partial(schedule, Space::acc, problem.count, 1);
  Fold sum(schedule, partial);
  sum.add(own.sum);
  tree_reduce(schedule, levels.across, levels.alone, problem.count, sum);
  if (problem.rank == problem.root) sum.end({Space::output, 0, problem.count}, true);
  return schedule;
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
