// The half of the simulator that runs nothing: bounds, pairing of sends and receives, races.

#include <algorithm>
#include <utility>

#include "simulate_memory.h"

namespace dicomm::simulate {

namespace {

std::string check_spans(const Job &job, size_t rank) {
  const Problem &p = job.problems[rank];
  const Schedule &schedule = job.schedules[rank];
  const std::vector<uint64_t> limits = sizes_of(p, schedule);
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
    const bool moves = step.kind == StepKind::to_host || step.kind == StepKind::to_chip;
    const bool codes = step.kind == StepKind::encode || step.kind == StepKind::decode;
    const bool computes = step.kind == StepKind::copy || step.kind == StepKind::reduce || moves || codes;
    if ((step.kind == StepKind::encode) !=
        (writes(step) && step.kind != StepKind::recv && step.dst.space == Space::wire)) {
      return fail("only encode and recv write what is for the wire", rank, i);
    }
    if (step.kind == StepKind::encode && (!inside(step.b) || step.b.count != step.a.count)) {
      return fail("no place for what encoding loses", rank, i);
    }
    if (moves && (schedule.lies_on_chip(step.a.space) != (step.kind == StepKind::to_host) ||
                  schedule.lies_on_chip(step.dst.space) != (step.kind == StepKind::to_chip))) {
      return fail("not between chip and host", rank, i);
    }
    if (moves && wide(p, step.a.space) != wide(p, step.dst.space)) return fail("types differ", rank, i);
    // A message, or arithmetic, that touches both memories.
    if (!moves && step.kind != StepKind::send && step.kind != StepKind::ccl && step.dst.count > 0) {
      const bool chip = schedule.lies_on_chip(step.dst.space);
      const bool same = (!reads_a(step) || chip == schedule.lies_on_chip(step.a.space)) &&
                        (!reads_b(step) || chip == schedule.lies_on_chip(step.b.space));
      if (!same || (step.kind == StepKind::recv && chip)) return fail("crosses to the chip", rank, i);
    }
    if (step.kind == StepKind::send && step.a.count > 0 && schedule.lies_on_chip(step.a.space)) {
      return fail("sends from the chip", rank, i);
    }
    if (computes && step.a.count != step.dst.count) return fail("counts differ", rank, i);
    if (reads_b(step) && step.b.count != step.dst.count) return fail("counts differ", rank, i);
    const bool message = step.kind == StepKind::send || step.kind == StepKind::recv;
    if (message && (step.peer < 0 || step.peer >= p.size || step.peer == p.rank)) {
      return fail("no such peer", rank, i);
    }
  }
  return {};
}

std::string check_pairs(const Job &job) {
  const auto partner = partners(job);
  for (size_t rank = 0; rank < job.schedules.size(); ++rank) {
    const std::vector<Step> &steps = job.schedules[rank].steps;
    size_t messages = 0;
    for (uint32_t i = 0; i < steps.size(); ++i) {
      const Step &step = steps[i];
      messages += step.kind == StepKind::ccl;
      if (step.kind != StepKind::send && step.kind != StepKind::recv) continue;
      ++messages;
      const bool sends = step.kind == StepKind::send;
      if (partner[rank][i] == kNone) {
        return fail(sends ? "send without a recv" : "recv without a send", rank, i);
      }
      if (sends) continue;
      const Step &send = job.schedules[static_cast<size_t>(step.peer)].steps[partner[rank][i]];
      const Problem &p = job.problems[rank];
      if (send.a.count != step.dst.count || wide(p, send.a.space) != wide(p, step.dst.space) ||
          (send.a.space == Space::wire) != (step.dst.space == Space::wire)) {
        return fail("send and recv differ in count or type", rank, i);
      }
    }
    if (messages == 0 && job.problems.size() > 1) return fail("a rank without messages", rank, 0);
  }
  return {};
}

// Whether a step always completes before a later one starts: looks for a chain of dependencies, which is
// short where a schedule is right.
class Order {
 public:
  explicit Order(const Schedule &schedule) : schedule_(schedule), seen_(schedule.steps.size()) {}

  bool before(uint32_t first, uint32_t then) {
    ++search_;
    open_ = {then};
    while (!open_.empty()) {
      const Step &step = schedule_.steps[open_.back()];
      open_.pop_back();
      for (uint32_t d = 0; d < step.dep_count; ++d) {
        const uint32_t dep = schedule_.deps[step.first_dep + d];
        if (dep == first) return true;
        if (dep < first || seen_[dep] == search_) continue;
        seen_[dep] = search_;
        open_.push_back(dep);
      }
    }
    return false;
  }

 private:
  const Schedule &schedule_;
  std::vector<uint64_t> seen_;  // by step: the last search that came by
  uint64_t search_ = 0;
  std::vector<uint32_t> open_;
};

// What last touched an element.
struct Touched {
  uint32_t writer = kNone;
  std::vector<uint32_t> readers;  // since then
};

// No two steps that no chain of dependencies orders touch the same elements, unless both only read.
// Dependencies name earlier steps only, so it is enough that each step comes after those that touched its
// elements last: what these came after, it comes after as well.
std::string check_races(const Job &job, size_t rank) {
  const Problem &p = job.problems[rank];
  const Schedule &schedule = job.schedules[rank];
  const Places places(p, job.in_place);
  Order order(schedule);
  std::vector<std::vector<Touched>> memories;
  for (const uint64_t size : sizes_of(p, schedule)) memories.emplace_back(size);
  for (uint32_t i = 0; i < schedule.steps.size(); ++i) {
    const Step &step = schedule.steps[i];
    if (is_no_op(p, places, step)) continue;
    bool race = false;
    uint32_t last = kNone;  // neighbouring elements were mostly touched by the same step
    const auto check = [&](uint32_t other) {
      if (other == last || other == kNone || other == i) return;
      last = other;
      race = race || !order.before(other, i);
    };
    const auto read = [&](const Interval &span) {
      for (uint64_t e = span.begin; e < span.end; ++e) {
        Touched &touched = memories[span.memory][e];
        check(touched.writer);
        touched.readers.push_back(i);
      }
    };
    if (reads_a(step)) read(places.of(step.a));
    if (reads_b(step)) read(places.of(step.b));
    const auto write = [&](const Interval &dst) {
      for (uint64_t e = dst.begin; e < dst.end; ++e) {
        Touched &touched = memories[dst.memory][e];
        check(touched.writer);
        for (uint32_t reader : touched.readers) check(reader);
        touched.writer = i;
        touched.readers.clear();
      }
    };
    if (writes(step)) write(places.of(step.dst));
    if (step.kind == StepKind::encode) write(places.of(step.b));
    if (race) return fail("race", rank, i);
  }
  return {};
}

// Within one step: an operand is the very memory of dst or apart from it.
std::string check_aliases(const Job &job, size_t rank) {
  const Problem &p = job.problems[rank];
  const Places places(p, job.in_place);
  const std::vector<Step> &steps = job.schedules[rank].steps;
  for (uint32_t i = 0; i < steps.size(); ++i) {
    const Step &step = steps[i];
    if ((step.kind != StepKind::copy && step.kind != StepKind::reduce) || is_no_op(p, places, step)) continue;
    for (const Span *operand : {&step.a, &step.b}) {
      if (operand == &step.b && !reads_b(step)) continue;
      const Interval a = places.of(*operand);
      const Interval dst = places.of(step.dst);
      const bool same = a.begin == dst.begin && wide(p, operand->space) == wide(p, step.dst.space);
      if (overlap(a, dst) && !same) return fail("a step's own spans overlap", rank, i);
    }
  }
  return {};
}

}  // namespace

std::vector<std::vector<uint32_t>> partners(const Job &job) {
  using End = std::pair<int, uint32_t>;  // the sender and a step: in this order k-th sends and recvs line up
  std::vector<std::vector<End>> sends(job.schedules.size());  // by receiver
  std::vector<std::vector<uint32_t>> out;
  for (size_t rank = 0; rank < job.schedules.size(); ++rank) {
    const std::vector<Step> &steps = job.schedules[rank].steps;
    out.emplace_back(steps.size(), kNone);
    for (uint32_t i = 0; i < steps.size(); ++i) {
      if (steps[i].kind != StepKind::send) continue;
      sends[static_cast<size_t>(steps[i].peer)].emplace_back(static_cast<int>(rank), i);
    }
  }
  for (size_t rank = 0; rank < job.schedules.size(); ++rank) {
    const std::vector<Step> &steps = job.schedules[rank].steps;
    std::vector<End> recvs;
    for (uint32_t i = 0; i < steps.size(); ++i) {
      if (steps[i].kind == StepKind::recv) recvs.emplace_back(steps[i].peer, i);
    }
    std::sort(recvs.begin(), recvs.end());
    auto send = sends[rank].begin();
    auto recv = recvs.begin();
    while (send != sends[rank].end() && recv != recvs.end()) {
      const int from = send->first;
      const int source = recv->first;
      if (from == source) {
        out[static_cast<size_t>(from)][send->second] = recv->second;
        out[rank][recv->second] = send->second;
      }
      if (from <= source) ++send;
      if (from >= source) ++recv;
    }
  }
  return out;
}

std::string check_statically(const Job &job) {
  for (size_t rank = 0; rank < job.problems.size(); ++rank) {
    std::string error = check_spans(job, rank);
    if (error.empty()) error = check_races(job, rank);
    if (error.empty()) error = check_aliases(job, rank);
    if (!error.empty()) return error;
  }
  return check_pairs(job);
}

}  // namespace dicomm::simulate
