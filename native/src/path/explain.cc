#include "path/explain.h"

#include <algorithm>
#include <limits>
#include <sstream>
#include <vector>

#include "base/names.h"
#include "base/operations.h"
#include "coll/arena.h"
#include "coll/through_host.h"
#include "model/simulate.h"
#include "path/libraries.h"
#include "path/prediction.h"
#include "path/words.h"

namespace dicomm {

namespace {

Problem make_problem(const Question &question, const Topology &topology, const LibrarySet &libraries,
                     int rank) {
  Problem problem;
  problem.op = static_cast<dicomm_opcode>(question.op);
  problem.rank = rank;
  problem.size = question.size;
  problem.element = question.element;
  if (is_reduction(question.op)) {
    problem.widened = question.widened;
    problem.scaled = question.scaled;
    problem.wire = question.wire;
  }
  const auto first = std::ranges::find_if_not(topology.ranks, &RankInfo::helps);
  problem.root = static_cast<int>(first - topology.ranks.begin());
  const bool helped = std::ranges::any_of(topology.ranks, &RankInfo::helps) &&
                      (problem.op == DICOMM_ALLREDUCE || problem.op == DICOMM_REDUCE);
  if (helped) {
    const bool helps = topology.ranks[static_cast<size_t>(rank)].helps();
    problem.role = helps ? Problem::Role::reducer : Problem::Role::worker;
    problem.wire.reset();
  }
  problem.on_chip = problem.op != DICOMM_BARRIER && problem.role != Problem::Role::reducer &&
                    topology.ranks[static_cast<size_t>(rank)].chip.vendor != "cpu";
  problem.arena = fits_arena(topology);
  problem.libraries = libraries.use(problem, question.accumulation, question.reduce);
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

std::vector<Problem> make_problems(const Question &question, const Topology &topology) {
  const LibrarySet libraries(topology);
  std::vector<Problem> problems;
  for (int rank = 0; rank < question.size; ++rank) {
    problems.push_back(make_problem(question, topology, libraries, rank));
  }
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
  const Status status =
      model::simulate(algorithm, make_problems(question, topology), topology, machine, made);
  if (!status.ok()) return concat("not counted: ", status.failure()->text);
  return concat(made.time, " (longest chain of messages that wait for one another)");
}

// "0 1 4": of at most a few.
std::string ranks_text(const std::vector<int> &ranks) {
  constexpr size_t kShown = 16;
  std::string text;
  for (size_t i = 0; i < std::min(ranks.size(), kShown); ++i) text += concat(i == 0 ? "" : " ", ranks[i]);
  return ranks.size() > kShown ? concat(text, " and ", ranks.size() - kShown, " more") : text;
}

// A line per island that has chips; "" without any.
std::string islands_text(const Topology &topology) {
  std::vector<std::vector<int>> islands(static_cast<size_t>(topology.islands()));
  for (int r = 0; r < topology.size(); ++r) {
    const RankInfo &rank = topology.ranks[static_cast<size_t>(r)];
    if (rank.chip.vendor != "cpu") islands[static_cast<size_t>(rank.island_index)].push_back(r);
  }
  std::string text;
  for (size_t i = 0; i < islands.size(); ++i) {
    if (islands[i].empty()) continue;
    text += concat("  island ", i, ": ranks ", ranks_text(islands[i]),
                   islands[i].size() > 1 ? "; its library is taken to know the operation\n" : ", alone\n");
  }
  return text;
}

struct Totals {
  uint64_t messages = 0, sent = 0, received = 0;
  uint64_t calls = 0, called = 0, to_host = 0, to_chip = 0;
};

Totals add_up(const Problem &problem, const Schedule &schedule) {
  Totals totals;
  for (const Step &step : schedule.steps) {
    const uint64_t a = model::bytes_of(problem, step.a), dst = model::bytes_of(problem, step.dst);
    if (step.kind == StepKind::send) {
      totals.sent += a;
      ++totals.messages;
    } else if (step.kind == StepKind::recv) {
      totals.received += dst;
    } else if (step.kind == StepKind::to_host) {
      totals.to_host += dst;
    } else if (step.kind == StepKind::to_chip) {
      totals.to_chip += dst;
    } else if (step.kind == StepKind::ccl && step.call != CclCall::begin && step.call != CclCall::end) {
      totals.called += std::max(a, dst);
      ++totals.calls;
    }
  }
  return totals;
}

// acc, chip_acc and so on, in bytes.
uint64_t scratch_bytes(const Problem &problem, const Schedule &schedule, Space wide,
                       std::initializer_list<Space> others) {
  uint64_t bytes = schedule.scratch(wide) * (problem.widened ? sizeof(float) : problem.element);
  for (const Space space : others) bytes += schedule.scratch(space) * problem.element;
  return bytes;
}

}  // namespace

std::string explain(const Rules &rules, const Question &question, const Topology &topology) {
  if (question.op < 0) return rules.table();
  if (question.op == DICOMM_SERVE)
    return "serve takes part in what others start, with the schedules of that\n";
  if (question.op < DICOMM_BARRIER || question.op > DICOMM_SCATTER) {
    return std::string(opcode_name(question.op)) +
           " moves one message between two ranks; it needs no rule and no schedule\n";
  }
  const Problem problem = make_problem(question, topology, LibrarySet(topology), question.rank);
  const Rule &rule = rules.choose(problem, topology);
  std::ostringstream out;
  out << opcode_name(problem.op) << ", " << question.count << " elements of " << problem.element << " bytes, "
      << problem.size << " ranks: " << rule.algorithm->name << '\n'
      << "  " << rule.algorithm->summary << '\n'
      << "  rule: " << rule.origin << ", " << opcode_name(rule.op) << ", bytes "
      << byte_range(rule.min_bytes, rule.max_bytes) << " (here " << bytes_text(problem.bytes()) << "), ranks "
      << size_range(rule.min_size, rule.max_size)
      << (rule.widened_only ? ", dtypes that accumulate in float32" : "") << '\n';
  if (question.simulate) {
    out << predict(*rule.algorithm, make_problems(question, topology), topology, question.machine);
    return out.str();
  }
  Schedule schedule = rule.algorithm->build(problem, topology);
  const bool through_host = problem.on_chip && !schedule.on_chip;
  if (through_host) schedule = coll::through_host(problem, std::move(schedule));
  if (uses_arena(*rule.algorithm, problem))
    out << "  messages of up to " << most_in_arena(problem.size)
        << " bytes go through memory that all ranks share\n";
  const Totals totals = add_up(problem, schedule);
  out << islands_text(topology) << "  rounds: " << rounds_text(*rule.algorithm, question, topology) << '\n'
      << "  rank " << problem.rank << ": sends " << totals.messages << " messages, " << totals.sent
      << " bytes; receives " << totals.received << " bytes; scratch "
      << scratch_bytes(problem, schedule, Space::acc, {Space::stage, Space::host_input, Space::host_output})
      << " bytes\n";
  if (schedule.on_chip) {
    out << "  its library: " << totals.calls << " calls, " << totals.called
        << " bytes; its chip: " << totals.to_host << " bytes to the host, " << totals.to_chip
        << " bytes to the chip, scratch "
        << scratch_bytes(problem, schedule, Space::chip_acc, {Space::chip_stage}) << " bytes\n";
  }
  if (through_host) out << "  no library has a part in it: buffers pass through the host's memory\n";
  out << "steps of rank " << problem.rank << ":\n" << schedule.describe();
  return out.str();
}

}  // namespace dicomm
