#include "exec/program.h"

#include <algorithm>
#include <unordered_map>

#include "exec/collective.h"

namespace dicomm {

Program::Program() = default;
Program::~Program() = default;

std::shared_ptr<const Program> Program::compile(const Algorithm &algorithm, Schedule schedule,
                                                bool in_arena) {
  auto program = std::make_shared<Program>();
  Program &p = *program;
  p.algorithm = &algorithm;
  p.in_arena = in_arena;
  p.schedule = std::move(schedule);
  const auto &steps = p.schedule.steps;
  const size_t n = steps.size();
  p.missing.resize(n);
  p.dependents = p.schedule.dependents();
  p.slot.resize(n);
  p.ordinal.resize(n);
  std::unordered_map<int, uint64_t> sent, received;  // by peer
  for (size_t i = 0; i < n; ++i) {
    const Step &step = steps[i];
    p.missing[i] = step.dep_count;
    if (step.kind == StepKind::send) {
      p.slot[i] = p.sends++;
      p.ordinal[i] = sent[step.peer]++;
    } else if (step.kind == StepKind::recv) {
      p.slot[i] = p.receives++;
      p.ordinal[i] = received[step.peer]++;
    } else if (step.kind == StepKind::to_host || step.kind == StepKind::to_chip || p.schedule.in_lane(step)) {
      p.slot[i] = p.chip_tasks++;
    }
  }
  return program;
}

std::shared_ptr<const Program> ProgramCache::find(const Problem &problem) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry &entry) { return entry.problem == problem; });
  return found == entries_.end() ? nullptr : found->program;
}

void ProgramCache::keep(const Problem &problem, std::shared_ptr<const Program> program) {
  if (program->schedule.steps.size() > kMostSteps) return;
  const std::lock_guard lock(mutex_);
  if (entries_.size() < kPrograms) {
    entries_.push_back({problem, std::move(program)});
    return;
  }
  entries_[oldest_] = {problem, std::move(program)};
  oldest_ = (oldest_ + 1) % kPrograms;
}

}  // namespace dicomm
