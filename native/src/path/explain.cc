#include "path/explain.h"

#include <algorithm>
#include <limits>
#include <sstream>
#include <vector>

#include "base/names.h"
#include "model/simulate.h"
#include "path/prediction.h"
#include "path/words.h"

namespace dicomm {

namespace {

Problem make_problem(const Question &question, int rank) {
  Problem problem;
  problem.op = static_cast<dicomm_opcode>(question.op);
  problem.rank = rank;
  problem.size = question.size;
  problem.element = question.element;
  problem.widened = question.widened;
  problem.count = question.count;
  const uint64_t n = static_cast<uint64_t>(question.size);
  for (uint64_t i = 0; i < n; ++i) {
    problem.counts.push_back(question.count / n + (i < question.count % n ? 1 : 0));
  }
  if (problem.op == DICOMM_ALLTOALL) {
    // Every rank must send equal blocks for the counts of all ranks to fit together.
    std::fill(problem.counts.begin(), problem.counts.end(), question.count / n);
    problem.recv_counts = problem.counts;
  }
  return problem;
}

std::vector<Problem> make_problems(const Question &question) {
  std::vector<Problem> problems;
  for (int rank = 0; rank < question.size; ++rank) problems.push_back(make_problem(question, rank));
  return problems;
}

// On a machine where nothing but a message's latency takes time, that time counts the messages of the longest
// chain.
std::string rounds_text(const Algorithm &algorithm, const Question &question, const Topology &topology) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  model::Machine machine;
  machine.local_latency = machine.remote_latency = 1e-12;
  machine.overhead = 0;
  machine.local_bandwidth = machine.remote_bandwidth = machine.nic_bandwidth = kInfinite;
  machine.copy_bandwidth = machine.reduce_bandwidth = kInfinite;
  machine.eager_bytes = std::numeric_limits<uint64_t>::max();
  model::Prediction made;
  const Status status = model::simulate(algorithm, make_problems(question), topology, machine, made);
  if (!status.ok()) return concat("not counted: ", status.failure()->text);
  return concat(made.time, " (longest chain of messages that wait for one another)");
}

}  // namespace

std::string explain(const Rules &rules, const Question &question, const Topology &topology) {
  if (question.op < 0) return rules.table();
  if (question.op < DICOMM_BARRIER || question.op > DICOMM_SCATTER) {
    return std::string(opcode_name(question.op)) +
           " moves one message between two ranks; it needs no rule and no schedule\n";
  }
  const Problem problem = make_problem(question, question.rank);
  const Rule &rule = rules.choose(problem, topology);
  const Schedule schedule = rule.algorithm->build(problem, topology);

  uint64_t sent = 0, received = 0, messages = 0;
  for (const Step &step : schedule.steps) {
    if (step.kind == StepKind::send) {
      sent += model::bytes_of(problem, step.a);
      ++messages;
    } else if (step.kind == StepKind::recv) {
      received += model::bytes_of(problem, step.dst);
    }
  }
  std::ostringstream out;
  out << opcode_name(problem.op) << ", " << question.count << " elements of " << problem.element << " bytes, "
      << problem.size << " ranks: " << rule.algorithm->name << '\n'
      << "  " << rule.algorithm->summary << '\n'
      << "  rule: " << rule.origin << ", " << opcode_name(rule.op) << ", bytes "
      << byte_range(rule.min_bytes, rule.max_bytes) << " (here " << bytes_text(problem.bytes()) << "), ranks "
      << size_range(rule.min_size, rule.max_size)
      << (rule.widened_only ? ", dtypes that accumulate in float32" : "") << '\n';
  if (question.simulate) {
    out << predict(*rule.algorithm, make_problems(question), topology, question.machine);
    return out.str();
  }
  out << "  rounds: " << rounds_text(*rule.algorithm, question, topology) << '\n';
  out << "  rank " << problem.rank << ": sends " << messages << " messages, " << sent << " bytes; receives "
      << received << " bytes; scratch "
      << schedule.scratch(Space::acc) * (problem.widened ? sizeof(float) : problem.element) +
             schedule.scratch(Space::stage) * problem.element
      << " bytes\n"
      << "steps of rank " << problem.rank << ":\n"
      << schedule.describe();
  return out.str();
}

}  // namespace dicomm
