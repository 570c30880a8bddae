#include "model/simulate.h"

#include <algorithm>

#include "model/critical_path.h"

namespace dicomm::model {

namespace {

constexpr double kMostPicoseconds = 2e18;  // 23 days; the clock ends at 9e18

// Serves in order of arrival, each at once whoever waits behind; `free` is when the last one's turn is over.
struct Station {
  Picoseconds free = 0;
  Picoseconds serve(Picoseconds now, Picoseconds service) { return free = std::max(now, free) + service; }
};

struct Message {
  uint32_t send;     // node
  Picoseconds last;  // when its last byte comes to where its first one is
};

// A rank's way out or in: one message at a time. Those that wait are a queue and not events, so that events
// stay few.
class Port {
 public:
  bool busy = false;
  bool empty() const { return head_ == queue_.size(); }
  void add(Message message) { queue_.push_back(message); }
  Message take() {
    const Message message = queue_[head_++];
    if (!empty()) return message;
    queue_.clear();
    head_ = 0;
    return message;
  }

 private:
  std::vector<Message> queue_;
  size_t head_ = 0;
};

enum class Stage : uint8_t {
  leave,      // a send may start
  left,       // the last byte is out of the sender
  nic_out,    // the first byte is at the sender's NIC
  arrive,     // the first byte is at the receiver's NIC, or at the receiver
  taken,      // the receiver's way in is free again
  delivered,  // the last byte is there
  finish,     // a copy or reduction has ended
};

struct Event {
  Picoseconds time;
  uint64_t order;   // of two events at one time, the one that was foreseen first
  Message message;  // finish: the step
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
        machine_(machine),
        out_(topology.ranks.size()),
        in_(topology.ranks.size()),
        arithmetic_(topology.ranks.size()),
        nic_out_(static_cast<size_t>(topology.hosts())),
        nic_in_(nic_out_.size()) {
    for (const RankInfo &rank : topology.ranks) host_.push_back(static_cast<size_t>(rank.host_index));
  }

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
  void push(Picoseconds time, Stage stage, Message message) {
    events_.push_back({time, order_++, message, stage});
    std::push_heap(events_.begin(), events_.end());
  }

  bool crosses(const Node &node) const { return host_[node.rank] != host_[node.peer]; }

  // Of a rank's way out or in.
  Picoseconds port_time(const Node &node) const {
    return machine_.overhead_time() + Machine::time(node.bytes, machine_.rate(crosses(node)));
  }

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
        push(arithmetic_[node.rank].serve(now, service), Stage::finish, {i, 0});
      }
    }
  }

  // The receiver of a long message has been asked and is ready.
  void answer(uint32_t i) {
    const Node &send = nodes_[i];
    const Picoseconds latency = machine_.latency(crosses(send));
    push(std::max(send.start + latency, nodes_[send.partner].start) + latency, Stage::leave, {i, 0});
  }

  void leave(uint32_t i, Picoseconds now) {
    Port &port = out_[nodes_[i].rank];
    port.add({i, 0});
    if (!port.busy) send_next(port, now);
  }

  void send_next(Port &port, Picoseconds now) {
    port.busy = !port.empty();
    if (!port.busy) return;
    const uint32_t i = port.take().send;
    const Node &send = nodes_[i];
    const Picoseconds first = now + machine_.overhead_time();
    const Picoseconds last = now + port_time(send);
    push(last, Stage::left, {i, 0});
    if (crosses(send)) return push(first, Stage::nic_out, {i, last});
    const Picoseconds latency = machine_.latency(false);
    push(first + latency, Stage::arrive, {i, last + latency});
  }

  void take_next(Port &port, Picoseconds now) {
    port.busy = !port.empty();
    if (!port.busy) return;
    const Message message = port.take();
    const Picoseconds end = now + port_time(nodes_[message.send]);
    push(end, Stage::taken, message);
    push(std::max(end, message.last + machine_.overhead_time()), Stage::delivered, message);
  }

  void handle(const Event &event) {
    const auto [i, last] = event.message;
    const Node &node = nodes_[i];
    switch (event.stage) {
      case Stage::leave:
        return leave(i, event.time);
      case Stage::left:
        send_next(out_[node.rank], event.time);
        return complete(i, event.time);
      case Stage::nic_out: {
        const Picoseconds latency = machine_.latency(true);
        const Picoseconds passed = through_nic(nic_out_[host_[node.rank]], event);
        return push(event.time + latency, Stage::arrive, {i, passed + latency});
      }
      case Stage::arrive: {
        Port &port = in_[node.peer];
        port.add({i, crosses(node) ? through_nic(nic_in_[host_[node.peer]], event) : last});
        if (!port.busy) take_next(port, event.time);
        return;
      }
      case Stage::taken:
        return take_next(in_[node.peer], event.time);
      case Stage::delivered:
        if (nodes_[node.partner].start >= 0) return complete(node.partner, event.time);
        nodes_[node.partner].end = event.time;
        return;
      case Stage::finish:
        return complete(i, event.time);
    }
  }

  // Messages share a NIC: the bytes of each begin to pass at once, the last one when the turn of those before
  // it is over.
  Picoseconds through_nic(Station &nic, const Event &event) {
    const Picoseconds service = Machine::time(nodes_[event.message.send].bytes, machine_.nic_bandwidth);
    return std::max(nic.serve(event.time, service), event.message.last);
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
  const Machine &machine_;
  std::vector<size_t> host_;               // per rank
  std::vector<Port> out_, in_;             // per rank
  std::vector<Station> arithmetic_;        // per rank
  std::vector<Station> nic_out_, nic_in_;  // per host
  std::vector<Event> events_;              // a heap
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
    return Status::make(
        DICOMM_NOT_SUPPORTED,
        "one after another, its steps would take more than 23 days; the clock does not go so far");
  }
  DICOMM_TRY(Run(program, topology, machine).run());

  Prediction made;
  made.steps = program.nodes.size();
  made.hosts.resize(static_cast<size_t>(topology.hosts()));
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
