#include "simulate.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "simulate_memory.h"

namespace dicomm::simulate {

namespace {

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15u + b + 0x7f4a7c15u;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9u;
  return x ^ (x >> 32);
}

struct Rank {
  std::vector<Value> memory[4];  // by Space; input unused when it coincides with output
  std::vector<int> waiting;      // open dependencies per step
  std::vector<std::vector<uint32_t>> followers;
  std::vector<size_t> place;  // of a send or recv among those with the same peer
  size_t left = 0;
};

class Machine {
 public:
  Machine(const Job &job, std::mt19937 &random) : job_(job), random_(random) {}

  std::string run() {
    for (size_t rank = 0; rank < job_.problems.size(); ++rank) prepare(rank);
    while (!ready_.empty() && error_.empty()) {
      const size_t pick = random_() % ready_.size();
      const auto [rank, step] = ready_[pick];
      ready_[pick] = ready_.back();
      ready_.pop_back();
      start(rank, step);
    }
    if (!error_.empty()) return error_;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].left != 0) return fail("deadlock or a message without a partner", rank, 0);
    }
    for (const auto &[pair, queue] : arrived_) {
      if (!queue.empty()) return fail("a message nobody received", static_cast<size_t>(pair.second), 0);
    }
    return check_results();
  }

 private:
  using Message = std::vector<Value>;

  Value &cell(size_t rank, Space space, uint64_t i) {
    const Problem &p = job_.problems[rank];
    size_t memory = static_cast<size_t>(space);
    if (job_.in_place && can_coincide(p) && (space == Space::input || space == Space::output)) {
      const int64_t shift = shift_of(p);
      if (p.op == DICOMM_REDUCE_SCATTER || p.op == DICOMM_SCATTER) {  // output lies in input
        memory = 0;
        if (space == Space::output) i += static_cast<uint64_t>(-shift);
      } else {  // input lies in output
        memory = 1;
        if (space == Space::input) i += static_cast<uint64_t>(shift);
      }
    }
    return ranks_[rank].memory[memory][i];
  }

  void prepare(size_t rank) {
    const Problem &p = job_.problems[rank];
    const Schedule &schedule = job_.schedules[rank];
    Rank state;
    state.memory[0].resize(input_count(p));
    state.memory[1].resize(output_count(p));
    state.memory[2].resize(schedule.acc_count);
    state.memory[3].resize(schedule.stage_count);
    state.waiting.resize(schedule.steps.size());
    state.followers.resize(schedule.steps.size());
    state.left = schedule.steps.size();
    state.place.resize(schedule.steps.size());
    std::map<std::pair<StepKind, int>, size_t> counted;
    for (uint32_t i = 0; i < schedule.steps.size(); ++i) {
      const Step &step = schedule.steps[i];
      state.waiting[i] = static_cast<int>(step.dep_count);
      state.place[i] = counted[{step.kind, step.peer}]++;
      for (uint32_t d = 0; d < step.dep_count; ++d) {
        state.followers[schedule.deps[step.first_dep + d]].push_back(i);
      }
      if (step.dep_count == 0) ready_.emplace_back(rank, i);
    }
    ranks_.push_back(std::move(state));
    const bool root_buffer = p.op == DICOMM_BROADCAST && p.rank == p.root;
    const uint64_t n = root_buffer ? output_count(p) : input_count(p);
    for (uint64_t i = 0; i < n; ++i) {
      Value value;
      value.state = State::raw;
      value.ranks = 1u << rank;
      value.index = i;
      value.hash = mix(rank + 1, i);
      cell(rank, root_buffer ? Space::output : Space::input, i) = value;
    }
  }

  void complete(size_t rank, uint32_t step) {
    --ranks_[rank].left;
    for (uint32_t next : ranks_[rank].followers[step]) {
      if (--ranks_[rank].waiting[next] == 0) ready_.emplace_back(rank, next);
    }
  }

  Message read(size_t rank, const Span &span) {
    Message out;
    for (uint64_t i = 0; i < span.count; ++i) out.push_back(cell(rank, span.space, span.offset + i));
    return out;
  }

  void start(size_t rank, uint32_t index) {
    const Step &step = job_.schedules[rank].steps[index];
    if (step.kind == StepKind::send) return start_send(rank, index, step);
    if (step.kind == StepKind::recv) {
      posted_[{step.peer, static_cast<int>(rank)}].push_back(index);
      return match(step.peer, static_cast<int>(rank));
    }
    compute(rank, index, step);
    complete(rank, index);
  }

  // Sends start in any order; messages match by step order. An eager send completes at once, others when the
  // recv has started: they read their memory only then.
  void start_send(size_t rank, uint32_t index, const Step &step) {
    Sent sent;
    sent.step = index;
    sent.eager = random_() % 2 == 0;
    if (sent.eager) {
      sent.data = read(rank, step.a);
      complete(rank, index);
    }
    arrived_[{static_cast<int>(rank), step.peer}].push_back(std::move(sent));
    match(static_cast<int>(rank), step.peer);
  }

  struct Sent {
    uint32_t step = 0;
    bool eager = false;
    Message data;
  };

  void match(int from, int to) {
    auto &sends = arrived_[{from, to}];
    auto &recvs = posted_[{from, to}];
    const size_t source = static_cast<size_t>(from);
    const size_t target = static_cast<size_t>(to);
    for (size_t s = 0; s < sends.size(); ++s) {
      for (size_t r = 0; r < recvs.size(); ++r) {
        if (ranks_[source].place[sends[s].step] != ranks_[target].place[recvs[r]]) continue;
        const Step &send = job_.schedules[source].steps[sends[s].step];
        const Step &recv = job_.schedules[target].steps[recvs[r]];
        const Message data = sends[s].eager ? sends[s].data : read(source, send.a);
        deliver(target, recvs[r], recv.dst, data);
        const uint32_t recv_step = recvs[r];
        const uint32_t send_step = sends[s].step;
        const bool eager = sends[s].eager;
        sends.erase(sends.begin() + static_cast<std::ptrdiff_t>(s));
        recvs.erase(recvs.begin() + static_cast<std::ptrdiff_t>(r));
        if (!eager) complete(source, send_step);
        complete(target, recv_step);
        return match(from, to);
      }
    }
  }

  void deliver(size_t rank, uint32_t index, const Span &dst, const Message &data) {
    const Problem &p = job_.problems[rank];
    for (uint64_t i = 0; i < dst.count; ++i) {
      const Value &value = data[i];
      if (value.state == State::unset) error_ = fail("sent what was never written", rank, index);
      if (reduces(p)) {
        const bool fits = value.state == State::raw        ? dst.space == Space::stage
                          : value.state == State::finished ? dst.space != Space::acc
                                                           : dst.space == Space::acc || !p.widened;
        if (!fits || dst.space == Space::input) error_ = fail("received into the wrong space", rank, index);
      }
      cell(rank, dst.space, dst.offset + i) = value;
    }
  }

  // An operand of a reduction as an accumulator.
  Value operand(size_t rank, uint32_t index, const Span &span, uint64_t i) {
    Value value = cell(rank, span.space, span.offset + i);
    if (value.state == State::unset) error_ = fail("read what was never written", rank, index);
    if (!reduces(job_.problems[rank])) return value;
    const bool raw_space = span.space == Space::input || span.space == Space::stage;
    if (raw_space != (value.state == State::raw)) error_ = fail("premul is applied not once", rank, index);
    if (value.state == State::finished) error_ = fail("arithmetic on a finished result", rank, index);
    value.state = State::partial;
    return value;
  }

  void compute(size_t rank, uint32_t index, const Step &step) {
    const Problem &p = job_.problems[rank];
    if (is_no_op(job_, rank, step)) return;
    for (uint64_t i = 0; i < step.dst.count; ++i) {
      Value value = operand(rank, index, step.a, i);
      if (step.kind == StepKind::reduce) {
        const Value other = operand(rank, index, step.b, i);
        if ((value.ranks & other.ranks) != 0) error_ = fail("a contribution counted twice", rank, index);
        if (value.index != other.index) error_ = fail("combined different elements", rank, index);
        value.ranks |= other.ranks;
        value.hash = mix(value.hash, other.hash);
      }
      if (reduces(p)) {
        if (step.finish) {
          if (step.dst.space == Space::acc) error_ = fail("finished into acc", rank, index);
          value.state = State::finished;
        } else if (step.dst.space == Space::stage || (step.dst.space == Space::output && p.widened)) {
          error_ = fail("a partial result rounded to dtype", rank, index);
        }
      }
      cell(rank, step.dst.space, step.dst.offset + i) = value;
    }
  }

  // What element i of rank's output must be.
  Value expected(const Problem &p, uint64_t i) const {
    Value value;
    value.state = reduces(p) ? State::finished : State::raw;
    value.index = i;
    int source = p.root;
    switch (p.op) {
      case DICOMM_REDUCE_SCATTER:
        value.index = i + offset_of(p.counts, p.rank);
        [[fallthrough]];
      case DICOMM_ALLREDUCE:
      case DICOMM_REDUCE:
        value.ranks = (uint32_t{1} << p.size) - 1;
        return value;
      case DICOMM_SCATTER:
        value.index = i + offset_of(job_.problems[static_cast<size_t>(p.root)].counts, p.rank);
        break;
      case DICOMM_ALLTOALL: {
        const auto [block, at] = locate(p.recv_counts, i);
        source = block;
        value.index = offset_of(job_.problems[static_cast<size_t>(block)].counts, p.rank) + at;
        break;
      }
      case DICOMM_ALLGATHER:
      case DICOMM_GATHER: {
        const auto [block, at] = locate(p.counts, i);
        source = block;
        value.index = at;
        break;
      }
      default:
        break;
    }
    value.ranks = uint32_t{1} << source;
    return value;
  }

  static std::pair<int, uint64_t> locate(const std::vector<uint64_t> &counts, uint64_t i) {
    int block = 0;
    while (i >= counts[static_cast<size_t>(block)]) i -= counts[static_cast<size_t>(block++)];
    return {block, i};
  }

  std::string check_results() {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      const Problem &p = job_.problems[rank];
      for (uint64_t i = 0; i < output_count(p); ++i) {
        const Value &value = cell(rank, Space::output, i);
        const Value want = expected(p, i);
        if (value.state != want.state || value.ranks != want.ranks || value.index != want.index) {
          return fail("wrong result", rank, static_cast<uint32_t>(i));
        }
        if (p.op == DICOMM_ALLREDUCE && value.hash != cell(0, Space::output, i).hash) {
          return fail("ranks differ in the order of operands", rank, static_cast<uint32_t>(i));
        }
      }
      const bool coincide = job_.in_place && can_coincide(p);
      for (uint64_t i = 0; !coincide && i < input_count(p); ++i) {
        if (ranks_[rank].memory[0][i].state != State::raw) return fail("input changed", rank, 0);
      }
    }
    return {};
  }

  const Job &job_;
  std::mt19937 &random_;
  std::vector<Rank> ranks_;
  std::vector<std::pair<size_t, uint32_t>> ready_;
  std::map<std::pair<int, int>, std::deque<Sent>> arrived_;
  std::map<std::pair<int, int>, std::deque<uint32_t>> posted_;
  std::string error_;
};

}  // namespace

uint64_t input_count(const Problem &p) {
  const size_t rank = static_cast<size_t>(p.rank);
  switch (p.op) {
    case DICOMM_ALLREDUCE:
    case DICOMM_REDUCE:
      return p.count;
    case DICOMM_ALLGATHER:
    case DICOMM_GATHER:
      return p.counts[rank];
    case DICOMM_REDUCE_SCATTER:
    case DICOMM_ALLTOALL:
      return total(p.counts);
    case DICOMM_SCATTER:
      return p.rank == p.root ? total(p.counts) : 0;
    default:
      return 0;
  }
}

uint64_t output_count(const Problem &p) {
  const size_t rank = static_cast<size_t>(p.rank);
  switch (p.op) {
    case DICOMM_BROADCAST:
    case DICOMM_ALLREDUCE:
      return p.count;
    case DICOMM_REDUCE:
      return p.rank == p.root ? p.count : 0;
    case DICOMM_ALLGATHER:
      return total(p.counts);
    case DICOMM_GATHER:
      return p.rank == p.root ? total(p.counts) : 0;
    case DICOMM_REDUCE_SCATTER:
    case DICOMM_SCATTER:
      return p.counts[rank];
    case DICOMM_ALLTOALL:
      return total(p.recv_counts);
    default:
      return 0;
  }
}

Job make_job(const Algorithm &algorithm, std::vector<Problem> problems, const Topology &topology,
             bool in_place) {
  Job job;
  job.in_place = in_place;
  for (const Problem &problem : problems) job.schedules.push_back(algorithm.build(problem, topology));
  job.problems = std::move(problems);
  return job;
}

std::string execute(const Job &job, std::mt19937 &random) { return Machine(job, random).run(); }

}  // namespace dicomm::simulate
