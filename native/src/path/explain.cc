#include "path/explain.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

#include "base/names.h"
#include "path/words.h"

namespace dicomm {

namespace {

constexpr int kRoundsUpTo = 64;  // ranks; counting rounds builds the schedules of all of them

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

uint64_t bytes_of(const Problem &problem, const Span &span) {
  const bool wide = span.space == Space::acc && problem.widened;
  return span.count * (wide ? sizeof(float) : problem.element);
}

// The schedules of all ranks as one graph whose longest chain of messages is the number of rounds.
class Rounds {
 public:
  Rounds(const Algorithm &algorithm, const Question &question, const Topology &topology) {
    for (int rank = 0; rank < question.size; ++rank) {
      schedules_.push_back(algorithm.build(make_problem(question, rank), topology));
      const Schedule &schedule = schedules_.back();
      known_.emplace_back(schedule.steps.size(), kUnknown);
      place_.emplace_back(schedule.steps.size(), 0);
      std::map<int, size_t> received;  // per peer
      for (uint32_t i = 0; i < schedule.steps.size(); ++i) {
        const Step &step = schedule.steps[i];
        if (step.kind == StepKind::send) sends_[{rank, step.peer}].push_back(i);
        if (step.kind == StepKind::recv) place_.back()[i] = received[step.peer]++;
      }
    }
  }

  int longest() {
    int most = 0;
    for (size_t rank = 0; rank < schedules_.size(); ++rank) {
      for (uint32_t i = 0; i < schedules_[rank].steps.size(); ++i) most = std::max(most, until(rank, i));
    }
    return most;
  }

 private:
  static constexpr int kUnknown = -1;

  // Messages on the longest chain that ends with the step.
  int until(size_t rank, uint32_t index) {
    if (known_[rank][index] != kUnknown) return known_[rank][index];
    const Schedule &schedule = schedules_[rank];
    const Step &step = schedule.steps[index];
    int most = 0;
    for (uint32_t i = 0; i < step.dep_count; ++i) {
      most = std::max(most, until(rank, schedule.deps[step.first_dep + i]));
    }
    if (step.kind == StepKind::recv) {
      const auto &sends = sends_[{step.peer, static_cast<int>(rank)}];
      most = std::max(most, 1 + until(static_cast<size_t>(step.peer), sends.at(place_[rank][index])));
    }
    return known_[rank][index] = most;
  }

  std::vector<Schedule> schedules_;
  std::map<std::pair<int, int>, std::vector<uint32_t>> sends_;  // (from, to): steps in order
  std::vector<std::vector<size_t>> place_;  // [rank][recv step]: which of the peer's sends
  std::vector<std::vector<int>> known_;
};

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
      sent += bytes_of(problem, step.a);
      ++messages;
    } else if (step.kind == StepKind::recv) {
      received += bytes_of(problem, step.dst);
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
  if (question.size <= kRoundsUpTo) {
    out << "  rounds: " << Rounds(*rule.algorithm, question, topology).longest()
        << " (longest chain of messages that wait for one another)\n";
  } else {
    out << "  rounds: not counted above " << kRoundsUpTo << " ranks\n";
  }
  out << "  rank " << problem.rank << ": sends " << messages << " messages, " << sent << " bytes; receives "
      << received << " bytes; scratch "
      << schedule.acc_count * (problem.widened ? sizeof(float) : problem.element) +
             schedule.stage_count * problem.element
      << " bytes\n"
      << "steps of rank " << problem.rank << ":\n"
      << schedule.describe();
  return out.str();
}

}  // namespace dicomm
