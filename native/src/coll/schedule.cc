#include "coll/schedule.h"

#include <algorithm>
#include <numeric>
#include <sstream>

namespace dicomm {

uint32_t Schedule::append(Step step, const After &after) {
  step.first_dep = static_cast<uint32_t>(deps.size());
  for (uint32_t dep : after) {
    if (dep != kNone) deps.push_back(dep);
  }
  step.dep_count = static_cast<uint32_t>(deps.size()) - step.first_dep;
  steps.push_back(step);
  return static_cast<uint32_t>(steps.size()) - 1;
}

uint32_t Schedule::send(int peer, Span a, const After &after) {
  return append({.kind = StepKind::send, .peer = peer, .a = a}, after);
}

uint32_t Schedule::recv(int peer, Span dst, const After &after) {
  return append({.kind = StepKind::recv, .peer = peer, .dst = dst}, after);
}

uint32_t Schedule::copy(Span dst, Span a, bool finish, const After &after) {
  return append({.kind = StepKind::copy, .finish = finish, .a = a, .dst = dst}, after);
}

uint32_t Schedule::reduce(Span dst, Span a, Span b, bool finish, const After &after) {
  return append({.kind = StepKind::reduce, .finish = finish, .a = a, .b = b, .dst = dst}, after);
}

uint32_t Schedule::to_host(Span dst, Span a, const After &after) {
  return append({.kind = StepKind::to_host, .a = a, .dst = dst}, after);
}

uint32_t Schedule::to_chip(Span dst, Span a, const After &after) {
  return append({.kind = StepKind::to_chip, .a = a, .dst = dst}, after);
}

uint32_t Schedule::encode(Span wire, Span a, uint64_t at, const After &after) {
  scratch(Space::residual) = std::max(scratch(Space::residual), at + a.count);
  const Span residual{Space::residual, at, a.count};
  return append({.kind = StepKind::encode, .a = a, .b = residual, .dst = wire}, after);
}

uint32_t Schedule::decode(Span dst, Span wire, const After &after) {
  return append({.kind = StepKind::decode, .a = wire, .dst = dst}, after);
}

uint32_t Schedule::ccl(CclCall call, int peer, Span dst, Span a, const After &after) {
  return append({.kind = StepKind::ccl, .call = call, .peer = peer, .a = a, .dst = dst}, after);
}

uint32_t Schedule::join(const After &after) {
  if (after.size() == 1) return after.front();
  return copy({Space::stage, 0, 0}, {Space::stage, 0, 0}, false, after);
}

Schedule::Dependents Schedule::dependents() const {
  Dependents found;
  found.first.assign(steps.size() + 1, 0);
  for (const uint32_t dep : deps) ++found.first[dep + 1];
  std::partial_sum(found.first.begin(), found.first.end(), found.first.begin());
  found.steps.resize(deps.size());
  std::vector<uint32_t> next(found.first.begin(), found.first.end() - 1);
  for (uint32_t i = 0; i < steps.size(); ++i) {
    for (uint32_t d = 0; d < steps[i].dep_count; ++d) {
      found.steps[next[deps[steps[i].first_dep + d]]++] = i;
    }
  }
  return found;
}

namespace {

const char *space_name(Space space) {
  static constexpr const char *kNames[kSpaces] = {"input",    "output",     "acc",        "stage",
                                                  "chip_acc", "chip_stage", "host_input", "host_output",
                                                  "wire",     "residual"};
  return kNames[static_cast<size_t>(space)];
}

const char *call_name(CclCall call) {
  static constexpr const char *kNames[] = {"reduce", "broadcast", "allreduce", "allgather", "reduce_scatter",
                                           "begin",  "send",      "recv",      "end"};
  return kNames[static_cast<size_t>(call)];
}

std::ostream &operator<<(std::ostream &out, const Span &span) {
  return out << space_name(span.space) << '[' << span.offset << ", " << span.offset + span.count << ')';
}

}  // namespace

std::string Schedule::describe() const {
  std::ostringstream out;
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step &step = steps[i];
    out << i << ": ";
    switch (step.kind) {
      case StepKind::send:
        out << "send " << step.a << " to " << step.peer;
        break;
      case StepKind::recv:
        out << "recv " << step.dst << " from " << step.peer;
        break;
      case StepKind::copy:
        out << "copy " << step.dst << " = " << step.a;
        break;
      case StepKind::reduce:
        out << "reduce " << step.dst << " = " << step.a << " op " << step.b;
        break;
      case StepKind::to_host:
        out << "to host " << step.dst << " = " << step.a;
        break;
      case StepKind::to_chip:
        out << "to chip " << step.dst << " = " << step.a;
        break;
      case StepKind::encode:
        out << "encode " << step.dst << " = " << step.a << " and " << step.b;
        break;
      case StepKind::decode:
        out << "decode " << step.dst << " = " << step.a;
        break;
      case StepKind::ccl:
        out << "island " << call_name(step.call) << ' ' << step.dst << " = " << step.a;
        if (step.peer >= 0) out << ", rank " << step.peer;
        break;
    }
    if (step.finish) out << ", finish";
    for (uint32_t d = 0; d < step.dep_count; ++d) {
      out << (d == 0 ? "; after " : ", ") << deps[step.first_dep + d];
    }
    out << '\n';
  }
  return out.str();
}

uint64_t Problem::bytes() const {
  switch (op) {
    case DICOMM_BROADCAST:
    case DICOMM_ALLREDUCE:
    case DICOMM_REDUCE:
      return count * element;
    case DICOMM_GATHER:
    case DICOMM_SCATTER:
      if (uneven) return 0;
      [[fallthrough]];
    case DICOMM_ALLGATHER:
    case DICOMM_REDUCE_SCATTER:
      return std::accumulate(counts.begin(), counts.end(), uint64_t{0}) * element;
    default:
      return 0;
  }
}

}  // namespace dicomm
