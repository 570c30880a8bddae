#include "model/simulate.h"

#include <algorithm>

#include "model/critical_path.h"

namespace dicomm::model {

namespace {

constexpr double kMostPicoseconds = 2e18;  // 23 days; the clock ends at 9e18

// Something that serves in order of arrival. What waits takes its turn; what is served while it still arrives
// uses the station only for its own time.
struct Station {
  Picoseconds free = 0;
  // Returns when the service began.
  Picoseconds serve(Picoseconds arrival, Picoseconds service) {
    const Picoseconds begin = std::max(arrival, free);
    free = begin + service;
    return begin;
  }
};

enum class Stage : uint8_t { leave, nic_out, nic_in, arrive, delivered, finish };

struct Event {
  Picoseconds time;
  uint64_t order;    // of two events at one time, the one that was foreseen first
  Picoseconds last;  // a message: when its last byte comes to where its first one is at `time`
  uint32_t node;
  Stage stage;
  bool operator<(const Event &other) const {  // for a heap that has the earliest on top
    return time != other.time ? time > other.time : order > other.order;
  }
};

class Run {
 public:
  Run(Program &program, const Topology &topology, const Machine &machine)
      : program_(program),
        nodes_(program.nodes),
        topology_(topology),
        machine_(machine),
        out_(topology.ranks.size()),
        in_(topology.ranks.size()),
        arithmetic_(topology.ranks.size()),
        nic_out_(static_cast<size_t>(host_count(topology))),
        nic_in_(nic_out_.size()) {}

  Status run() {
    for (uint32_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].waiting == 0) start(i, 0);
    }
    while (!events_.empty()) {
      std::pop_heap(events_.begin(), events_.end());
      const Event event = events_.back();
      events_.pop_back();
      handle(event);
    }
    if (completed_ == nodes_.size()) return {};
    return Status::make(DICOMM_INTERNAL, nodes_.size() - completed_, " steps wait for one another for ever");
  }

 private:
  void push(Picoseconds time, Picoseconds last, uint32_t node, Stage stage) {
    events_.push_back({time, order_++, last, node, stage});
    std::push_heap(events_.begin(), events_.end());
  }

  bool crosses(const Node &node) const {
    return remote(topology_, static_cast<int>(node.rank), static_cast<int>(node.peer));
  }
  size_t host(uint32_t rank) const { return static_cast<size_t>(topology_.ranks[rank].host_index); }

  void start(uint32_t i, Picoseconds now) {
    Node &node = nodes_[i];
    node.start = now;
    const bool asks = node.bytes > machine_.eager_bytes;
    switch (node.kind) {
      case StepKind::send:
        if (!asks) return leave(i, now);
        if (nodes_[node.partner].start >= 0) answer(i);
        return;
      case StepKind::recv:
        if (node.end >= 0) return complete(i, now);
        if (asks && nodes_[node.partner].start >= 0) answer(node.partner);
        return;
      default: {
        const bool reduces = node.kind == StepKind::reduce;
        const double rate = reduces ? machine_.reduce_bandwidth : machine_.copy_bandwidth;
        const Picoseconds service = Machine::time(node.bytes, rate);
        complete_at(i, arithmetic_[node.rank].serve(now, service) + service);
      }
    }
  }

  // The receiver of a long message has been asked and is ready.
  void answer(uint32_t i) {
    const Node &send = nodes_[i];
    const Picoseconds latency = machine_.latency(crosses(send));
    push(std::max(send.start + latency, nodes_[send.partner].start) + latency, 0, i, Stage::leave);
  }

  void leave(uint32_t i, Picoseconds now) {
    const Node &send = nodes_[i];
    const bool far = crosses(send);
    const Picoseconds service = machine_.overhead_time() + Machine::time(send.bytes, machine_.rate(far));
    const Picoseconds begin = out_[send.rank].serve(now, service);
    const Picoseconds latency = far ? 0 : machine_.latency(false);  // between hosts it counts after the NIC
    push(begin + machine_.overhead_time() + latency, begin + service + latency, i,
         far ? Stage::nic_out : Stage::arrive);
    complete_at(i, begin + service);
  }

  void handle(const Event &event) {
    const Node &node = nodes_[event.node];
    switch (event.stage) {
      case Stage::leave:
        return leave(event.node, event.time);
      case Stage::nic_out:
        return through_nic(event, nic_out_[host(node.rank)], machine_.latency(true), Stage::nic_in);
      case Stage::nic_in:
        return through_nic(event, nic_in_[host(node.peer)], 0, Stage::arrive);
      case Stage::arrive: {
        const Picoseconds overhead = machine_.overhead_time();
        const Picoseconds service = overhead + Machine::time(node.bytes, machine_.rate(crosses(node)));
        const Picoseconds end = in_[node.peer].serve(event.time, service) + service;
        return push(std::max(end, event.last + overhead), 0, node.partner, Stage::delivered);
      }
      case Stage::delivered:
        if (node.start >= 0) return complete(event.node, event.time);
        nodes_[event.node].end = event.time;
        return;
      case Stage::finish:
        return complete(event.node, event.time);
    }
  }

  void through_nic(const Event &event, Station &nic, Picoseconds latency, Stage next) {
    const Picoseconds service = Machine::time(nodes_[event.node].bytes, machine_.nic_bandwidth);
    const Picoseconds begin = nic.serve(event.time, service);
    push(begin + latency, std::max(begin + service, event.last) + latency, event.node, next);
  }

  void complete_at(uint32_t i, Picoseconds time) {
    if (program_.followers(i).empty()) {  // nobody waits for the event
      nodes_[i].end = time;
      ++completed_;
      return;
    }
    push(time, 0, i, Stage::finish);
  }

  // A recv whose message is already there completes within start(): a list instead of recursion.
  void complete(uint32_t i, Picoseconds now) {
    nodes_[i].end = now;
    ++completed_;
    done_.push_back(i);
    if (completing_) return;
    completing_ = true;
    while (!done_.empty()) {
      const uint32_t step = done_.back();
      done_.pop_back();
      for (uint32_t next : program_.followers(step)) {
        if (--nodes_[next].waiting > 0) continue;
        nodes_[next].cause = step;
        start(next, now);
      }
    }
    completing_ = false;
  }

  Program &program_;
  std::vector<Node> &nodes_;
  const Topology &topology_;
  const Machine &machine_;
  std::vector<Station> out_, in_, arithmetic_;  // per rank
  std::vector<Station> nic_out_, nic_in_;       // per host
  std::vector<Event> events_;                   // a heap
  std::vector<uint32_t> done_;
  uint64_t order_ = 0;
  size_t completed_ = 0;
  bool completing_ = false;
};

// What all steps one after another would take: more than any order of them does.
double serial_picoseconds(const Program &program, const Machine &machine) {
  const double slowest = std::min({machine.local_bandwidth, machine.remote_bandwidth, machine.nic_bandwidth,
                                   machine.copy_bandwidth, machine.reduce_bandwidth});
  double seconds = 0;
  for (const Node &node : program.nodes) {
    seconds += 3 * (machine.local_latency + machine.remote_latency) + 2 * machine.overhead +
               4 * static_cast<double>(node.bytes) / slowest;
  }
  return seconds * 1e12;
}

}  // namespace

Status simulate(const Algorithm &algorithm, const std::vector<Problem> &problems, const Topology &topology,
                const Machine &machine, Prediction &out) {
  DICOMM_TRY(machine.check());
  Program program;
  DICOMM_TRY(Program::build(algorithm, problems, topology, program));
  if (serial_picoseconds(program, machine) > kMostPicoseconds) {
    return Status::make(DICOMM_NOT_SUPPORTED, "so slow a machine may need more than 23 days");
  }
  DICOMM_TRY(Run(program, topology, machine).run());

  Prediction made;
  made.steps = program.nodes.size();
  made.hosts.resize(static_cast<size_t>(host_count(topology)));
  for (const RankInfo &rank : topology.ranks) ++made.hosts[static_cast<size_t>(rank.host_index)].ranks;
  for (const Node &node : program.nodes) {
    made.time = std::max(made.time, node.end);
    if (node.kind != StepKind::send) continue;
    ++made.messages;
    if (!remote(topology, static_cast<int>(node.rank), static_cast<int>(node.peer))) continue;
    made.hosts[static_cast<size_t>(topology.ranks[node.rank].host_index)].sent += node.bytes;
    made.hosts[static_cast<size_t>(topology.ranks[node.peer].host_index)].received += node.bytes;
  }
  made.path = critical_path(program, topology, machine);
  out = std::move(made);
  return {};
}

}  // namespace dicomm::model
