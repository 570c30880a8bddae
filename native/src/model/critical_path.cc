#include "model/critical_path.h"

#include <algorithm>

namespace dicomm::model {

namespace {

// From the last step to end back to the one that waited for nothing.
class Walk {
 public:
  Walk(const Program &program, const Topology &topology, const Machine &machine)
      : program_(program), topology_(topology), machine_(machine) {}

  CriticalPath back_from(uint32_t step) {
    while (step != kNone) step = before(step);
    return path_;
  }

 private:
  const Node &node(uint32_t step) const { return program_.nodes[step]; }

  // Adds the time of a step and returns the one whose end let it start.
  uint32_t before(uint32_t step) {
    const Node &at = node(step);
    switch (at.kind) {
      case StepKind::send:
        return message(at, node(at.partner), at.end, 1);
      case StepKind::recv:
        if (at.end == at.start) return at.cause;  // the message was there before
        ++path_.messages;
        return message(node(at.partner), at, at.end, 2);
      default:
        ++path_.computations;
        const bool reduces = at.kind == StepKind::reduce;
        const double rate = reduces ? machine_.reduce_bandwidth : machine_.copy_bandwidth;
        const Picoseconds service = Machine::time(at.bytes, rate);
        path_.arithmetic += service;
        path_.waiting += at.end - at.start - service;
        return at.cause;
    }
  }

  // A message until `end`: until it has left (one overhead, no latency of its own) or has arrived (two).
  uint32_t message(const Node &send, const Node &recv, Picoseconds end, int overheads) {
    const bool far = remote(topology_, static_cast<int>(send.rank), static_cast<int>(send.peer));
    const Picoseconds latency = machine_.latency(far);
    const bool asks = send.bytes > machine_.eager_bytes;
    const bool receiver_late = asks && recv.start > send.start + latency;
    const Node &began = receiver_late ? recv : send;
    const int latencies = (overheads - 1) + (!asks ? 0 : receiver_late ? 1 : 2);
    const Picoseconds fixed = overheads * machine_.overhead_time() + latencies * latency;
    const double rate = overheads == 1 ? machine_.rate(far) : machine_.path_rate(far);
    const Picoseconds transfer = Machine::time(send.bytes, rate);
    path_.latency += fixed;
    path_.transfer += transfer;
    path_.waiting += end - began.start - fixed - transfer;
    if (overheads == 2 && far) ++path_.remote_messages;
    return began.cause;
  }

  const Program &program_;
  const Topology &topology_;
  const Machine &machine_;
  CriticalPath path_;
};

}  // namespace

CriticalPath critical_path(const Program &program, const Topology &topology, const Machine &machine) {
  const auto last = std::max_element(program.nodes.begin(), program.nodes.end(),
                                     [](const Node &a, const Node &b) { return a.end < b.end; });
  if (last == program.nodes.end()) return {};
  return Walk(program, topology, machine).back_from(static_cast<uint32_t>(last - program.nodes.begin()));
}

}  // namespace dicomm::model
