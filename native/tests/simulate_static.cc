// The half of the simulator that runs nothing: bounds, pairing of sends and receives, races.

#include <algorithm>
#include <map>

#include "simulate_memory.h"

namespace dicomm::simulate {

namespace {

std::string check_spans(const Job &job, size_t rank) {
  const Problem &p = job.problems[rank];
  const Schedule &schedule = job.schedules[rank];
  const uint64_t limits[] = {input_count(p), output_count(p), schedule.acc_count, schedule.stage_count};
  const auto inside = [&](const Span &span) {
    return span.offset + span.count <= limits[static_cast<size_t>(span.space)];
  };
  for (uint32_t i = 0; i < schedule.steps.size(); ++i) {
    const Step &step = schedule.steps[i];
    for (uint32_t d = 0; d < step.dep_count; ++d) {
      if (schedule.deps[step.first_dep + d] >= i) return fail("depends on a later step", rank, i);
    }
    if ((reads_a(step) && !inside(step.a)) || (reads_b(step) && !inside(step.b)) ||
        (writes(step) && !inside(step.dst))) {
      return fail("out of bounds", rank, i);
    }
    if (writes(step) && step.dst.space == Space::input) return fail("writes input", rank, i);
    const bool computes = step.kind == StepKind::copy || step.kind == StepKind::reduce;
    if (computes && step.a.count != step.dst.count) return fail("counts differ", rank, i);
    if (reads_b(step) && step.b.count != step.dst.count) return fail("counts differ", rank, i);
    const bool message = step.kind == StepKind::send || step.kind == StepKind::recv;
    if (message && (step.peer < 0 || step.peer >= p.size || step.peer == p.rank)) {
      return fail("no such peer", rank, i);
    }
  }
  return {};
}

bool wide(const Problem &p, Space space) { return p.widened && space == Space::acc; }

std::string check_pairs(const Job &job) {
  std::map<std::pair<int, int>, std::vector<const Step *>> sends;
  std::map<std::pair<int, int>, size_t> received;
  for (size_t rank = 0; rank < job.schedules.size(); ++rank) {
    size_t messages = 0;
    for (const Step &step : job.schedules[rank].steps) {
      if (step.kind == StepKind::send) sends[{static_cast<int>(rank), step.peer}].push_back(&step);
      messages += step.kind == StepKind::send || step.kind == StepKind::recv;
    }
    if (messages == 0 && job.problems.size() > 1) return fail("a rank without messages", rank, 0);
  }
  for (size_t rank = 0; rank < job.schedules.size(); ++rank) {
    for (uint32_t i = 0; i < job.schedules[rank].steps.size(); ++i) {
      const Step &step = job.schedules[rank].steps[i];
      if (step.kind != StepKind::recv) continue;
      const std::pair<int, int> pair{step.peer, static_cast<int>(rank)};
      const size_t k = received[pair]++;
      if (k >= sends[pair].size()) return fail("recv without a send", rank, i);
      const Step &send = *sends[pair][k];
      const Problem &p = job.problems[rank];
      if (send.a.count != step.dst.count || wide(p, send.a.space) != wide(p, step.dst.space)) {
        return fail("send and recv differ in count or type", rank, i);
      }
    }
  }
  for (const auto &[pair, steps] : sends) {
    if (received[pair] != steps.size())
      return fail("send without a recv", static_cast<size_t>(pair.first), 0);
  }
  return {};
}

// No two steps that no chain of dependencies orders touch the same elements, unless both only read.
std::string check_races(const Job &job, size_t rank) {
  const Schedule &schedule = job.schedules[rank];
  const size_t n = schedule.steps.size();
  std::vector<std::vector<bool>> before(n,
                                        std::vector<bool>(n));  // [i][j]: j always completes before i starts
  for (uint32_t i = 0; i < n; ++i) {
    const Step &step = schedule.steps[i];
    for (uint32_t d = 0; d < step.dep_count; ++d) {
      const uint32_t dep = schedule.deps[step.first_dep + d];
      before[i][dep] = true;
      for (uint32_t j = 0; j < dep; ++j) {
        if (before[dep][j]) before[i][j] = true;
      }
    }
    if (is_no_op(job, rank, step)) continue;
    const auto conflict = [&](const Step &other) {
      const auto hits = [&](const Step &writer, const Step &reader) {
        if (!writes(writer)) return false;
        const Interval dst = interval(job, rank, writer.dst);
        return (reads_a(reader) && overlap(dst, interval(job, rank, reader.a))) ||
               (reads_b(reader) && overlap(dst, interval(job, rank, reader.b))) ||
               (writes(reader) && overlap(dst, interval(job, rank, reader.dst)));
      };
      return hits(step, other) || hits(other, step);
    };
    for (uint32_t j = 0; j < i; ++j) {
      const bool skipped = is_no_op(job, rank, schedule.steps[j]);
      if (!before[i][j] && !skipped && conflict(schedule.steps[j])) return fail("race", rank, i);
    }
    // Within one step: an operand is the very memory of dst or apart from it.
    const bool computes = step.kind == StepKind::copy || step.kind == StepKind::reduce;
    for (const Span *operand : {&step.a, &step.b}) {
      if (!computes || (operand == &step.b && !reads_b(step))) continue;
      const Interval a = interval(job, rank, *operand);
      const Interval dst = interval(job, rank, step.dst);
      const Problem &p = job.problems[rank];
      const bool same = a.begin == dst.begin && wide(p, operand->space) == wide(p, step.dst.space);
      if (overlap(a, dst) && !same) return fail("a step's own spans overlap", rank, i);
    }
  }
  return {};
}

}  // namespace

std::string check_statically(const Job &job) {
  for (size_t rank = 0; rank < job.problems.size(); ++rank) {
    std::string error = check_spans(job, rank);
    if (error.empty()) error = check_races(job, rank);
    if (!error.empty()) return error;
  }
  return check_pairs(job);
}

}  // namespace dicomm::simulate
