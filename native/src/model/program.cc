#include "model/program.h"

#include <algorithm>
#include <numeric>

namespace dicomm::model {

uint64_t bytes_of(const Problem &problem, const Span &span) {
  // Without the scales of 8-bit floats, one for many elements.
  if (span.space == Space::wire) return span.count * dicomm_dtype_size(*problem.wire);
  const bool acc = span.space == Space::acc || span.space == Space::chip_acc;
  const bool wide = acc && problem.widened;
  return span.count * (wide ? sizeof(float) : problem.element);
}

Status Program::build(const Algorithm &algorithm, const std::vector<Problem> &problems,
                      const Topology &topology, Program &out) {
  const Status too_long =
      Status::make(DICOMM_NOT_SUPPORTED, "more than ", kMostSteps, " steps on all ranks together");
  const Status on_chip =
      Status::make(DICOMM_NOT_SUPPORTED, "the model knows no chips: what a library does is its own");
  const Schedule first = algorithm.build(problems[0], topology);
  if (first.on_chip) return on_chip;
  uint64_t steps = first.steps.size() * problems.size();  // as a rule
  if (steps > kMostSteps) {                               // count before filling memory
    steps = 0;
    for (const Problem &problem : problems) {
      steps += algorithm.build(problem, topology).steps.size();
      if (steps > kMostSteps) return too_long;
    }
  }
  Program program;
  program.nodes.reserve(steps);
  program.first_follower_.reserve(steps + 1);
  for (const Problem &problem : problems) {  // only one schedule at a time is in memory as it is
    const Schedule schedule = problem.rank == 0 ? first : algorithm.build(problem, topology);
    if (schedule.on_chip) return on_chip;
    program.append(schedule, problem);
    if (program.nodes.size() > kMostSteps) return too_long;
  }
  DICOMM_TRY(program.pair_messages(problems.size()));
  out = std::move(program);
  return {};
}

void Program::append(const Schedule &schedule, const Problem &problem) {
  const uint32_t base = static_cast<uint32_t>(nodes.size());
  for (const Step &step : schedule.steps) {
    Node node;
    const bool message = step.kind == StepKind::send || step.kind == StepKind::recv;
    node.bytes = bytes_of(problem, step.kind == StepKind::send ? step.a : step.dst);
    node.kind = step.kind;
    node.rank = static_cast<uint32_t>(problem.rank);
    node.peer = message ? static_cast<uint32_t>(step.peer) : 0;
    node.waiting = step.dep_count;
    nodes.push_back(node);
  }
  const uint32_t first = static_cast<uint32_t>(followers_.size());
  const Schedule::Dependents dependents = schedule.dependents();
  for (size_t i = 1; i < dependents.first.size(); ++i) first_follower_.push_back(first + dependents.first[i]);
  for (const uint32_t step : dependents.steps) followers_.push_back(base + step);
}

// The k-th send to a peer belongs to the k-th recv there. Sends are put in the order (receiver, sender,
// step), then each receiver's recvs in the order (sender, step).
Status Program::pair_messages(size_t ranks) {
  std::vector<size_t> first(ranks + 1);  // of a receiver's sends
  for (const Node &node : nodes) {
    if (node.kind == StepKind::send) ++first[node.peer + 1];
  }
  std::partial_sum(first.begin(), first.end(), first.begin());
  std::vector<uint32_t> sends(first.back());
  std::vector<size_t> next(first.begin(), first.end() - 1);
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].kind == StepKind::send) sends[next[nodes[i].peer]++] = i;
  }
  std::vector<uint32_t> recvs;
  for (uint32_t i = 0; i < nodes.size();) {
    const uint32_t rank = nodes[i].rank;
    recvs.clear();
    for (; i < nodes.size() && nodes[i].rank == rank; ++i) {
      if (nodes[i].kind == StepKind::recv) recvs.push_back(i);
    }
    std::stable_sort(recvs.begin(), recvs.end(),
                     [&](uint32_t a, uint32_t b) { return nodes[a].peer < nodes[b].peer; });
    for (size_t k = 0; k < recvs.size(); ++k) {
      Node &recv = nodes[recvs[k]];
      const size_t at = first[rank] + k;
      const bool there = at < first[rank + 1] && nodes[sends[at]].rank == recv.peer;
      if (!there || nodes[sends[at]].bytes != recv.bytes) {
        return Status::make(DICOMM_INTERNAL, "rank ", rank, " waits for a message that rank ", recv.peer,
                            " does not send");
      }
      recv.partner = sends[at];
      nodes[sends[at]].partner = recvs[k];
    }
  }
  const bool all = std::all_of(nodes.begin(), nodes.end(), [](const Node &node) {
    return node.kind != StepKind::send || node.partner != kNone;
  });
  if (!all) return Status::make(DICOMM_INTERNAL, "a message that nobody receives");
  return {};
}

}  // namespace dicomm::model
