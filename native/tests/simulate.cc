#include "simulate.h"

#include <algorithm>
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

using Message = std::vector<Value>;

// All that starting a message needs, close together: there may be millions.
struct StepState {
  uint32_t waiting = 0;  // open dependencies
  uint32_t first_follower = 0;
  uint32_t partner = kNone;
  uint32_t peer = 0;
  StepKind kind = StepKind::copy;
  bool started = false;
  bool eager = false;  // a send that completes before its message is received
  Message message;     // what it sent
};

struct Rank {
  Rank(const Problem &p, bool in_place) : places(p, in_place) {}
  Places places;
  std::vector<Value> memory[4];     // by Interval::memory
  std::vector<StepState> steps;     // and one more, where the last one's followers end
  std::vector<uint32_t> followers;  // step by step
  size_t left = 0;
};

class Machine {
 public:
  Machine(const Job &job, std::mt19937 &random) : job_(job), random_(random) {}

  std::string run() {
    const auto partner = partners(job_);
    for (size_t rank = 0; rank < job_.problems.size(); ++rank) prepare(rank, partner[rank]);
    while (!ready_.empty() && error_.empty()) {
      // Among so many ranks that these are all of the last one's, a rank runs as far as it can before others.
      const size_t pick = ready_.size() - 1 - random_() % std::min<size_t>(ready_.size(), 1024);
      const auto [rank, step] = ready_[pick];
      ready_[pick] = ready_.back();
      ready_.pop_back();
      start(rank, step);
    }
    if (!error_.empty()) return error_;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].left != 0) return fail("deadlock or a message without a partner", rank, 0);
      for (const StepState &step : ranks_[rank].steps) {
        if (step.eager && step.partner == kNone) return fail("a message nobody received", rank, 0);
      }
    }
    return check_results();
  }

 private:
  Value &cell(size_t rank, Space space, uint64_t i) {
    const Interval at = ranks_[rank].places.of({space, i, 1});
    return ranks_[rank].memory[at.memory][at.begin];
  }

  void prepare(size_t rank, const std::vector<uint32_t> &partner) {
    const Problem &p = job_.problems[rank];
    const Schedule &schedule = job_.schedules[rank];
    const uint32_t n = static_cast<uint32_t>(schedule.steps.size());
    Rank state(p, job_.in_place);
    state.memory[0].resize(input_count(p));
    state.memory[1].resize(output_count(p));
    state.memory[2].resize(schedule.acc_count);
    state.memory[3].resize(schedule.stage_count);
    state.steps.resize(n + 1);
    state.left = n;
    std::vector<uint32_t> next(n + 1);  // place for a step's next follower
    for (uint32_t i = 0; i < n; ++i) {
      const Step &step = schedule.steps[i];
      state.steps[i].waiting = step.dep_count;
      state.steps[i].partner = partner[i];
      state.steps[i].peer = static_cast<uint32_t>(step.peer);
      state.steps[i].kind = step.kind;
      if (step.dep_count == 0) ready_.emplace_back(rank, i);
      for (uint32_t d = 0; d < step.dep_count; ++d) ++next[schedule.deps[step.first_dep + d] + 1];
    }
    std::partial_sum(next.begin(), next.end(), next.begin());
    for (uint32_t i = 0; i <= n; ++i) state.steps[i].first_follower = next[i];
    state.followers.resize(next[n]);
    for (uint32_t i = 0; i < n; ++i) {
      const Step &step = schedule.steps[i];
      for (uint32_t d = 0; d < step.dep_count; ++d) {
        state.followers[next[schedule.deps[step.first_dep + d]]++] = i;
      }
    }
    ranks_.push_back(std::move(state));
    const bool root_buffer = p.op == DICOMM_BROADCAST && p.rank == p.root;
    const uint64_t given = root_buffer ? output_count(p) : input_count(p);
    for (uint64_t i = 0; i < given; ++i) {
      Value value;
      value.state = State::raw;
      value.ranks = RankSet::of(static_cast<int>(rank));
      value.index = i;
      value.hash = mix(rank + 1, i);
      cell(rank, root_buffer ? Space::output : Space::input, i) = value;
    }
  }

  void complete(size_t rank, uint32_t step) {
    Rank &state = ranks_[rank];
    --state.left;
    for (uint32_t f = state.steps[step].first_follower; f < state.steps[step + 1].first_follower; ++f) {
      const uint32_t next = state.followers[f];
      if (--state.steps[next].waiting == 0) ready_.emplace_back(rank, next);
    }
  }

  const Value *read(size_t rank, const Span &span) {
    const Interval at = ranks_[rank].places.of(span);
    return ranks_[rank].memory[at.memory].data() + at.begin;
  }

  // Sends start in any order; messages match by step order. An eager send completes at once, others when the
  // recv has started: they read their memory only then.
  void start(size_t rank, uint32_t index) {
    StepState &state = ranks_[rank].steps[index];
    if (state.kind == StepKind::copy || state.kind == StepKind::reduce) {
      compute(rank, index, job_.schedules[rank].steps[index]);
      return complete(rank, index);
    }
    const size_t peer = state.peer;
    state.started = true;
    const bool meets = state.partner != kNone && ranks_[peer].steps[state.partner].started;
    if (state.kind == StepKind::recv) {
      if (meets) move(peer, state.partner, rank, index);
      return;
    }
    state.eager = random_() % 2 == 0;
    if (state.eager) {
      const Span &span = job_.schedules[rank].steps[index].a;
      const Value *data = read(rank, span);
      state.message.assign(data, data + span.count);
      complete(rank, index);
    }
    if (meets) move(rank, index, peer, state.partner);
  }

  void move(size_t from, uint32_t send, size_t to, uint32_t recv) {
    StepState &sent = ranks_[from].steps[send];
    const Span &dst = job_.schedules[to].steps[recv].dst;
    if (sent.eager) {
      deliver(to, recv, dst, sent.message.data());
      sent.message = {};
    } else {
      deliver(to, recv, dst, read(from, job_.schedules[from].steps[send].a));
      complete(from, send);
    }
    complete(to, recv);
  }

  void deliver(size_t rank, uint32_t index, const Span &dst, const Value *data) {
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
    if (is_no_op(p, ranks_[rank].places, step)) return;
    for (uint64_t i = 0; i < step.dst.count; ++i) {
      Value value = operand(rank, index, step.a, i);
      if (step.kind == StepKind::reduce) {
        const Value other = operand(rank, index, step.b, i);
        if (value.index != other.index) error_ = fail("combined different elements", rank, index);
        value.ranks.add(other.ranks);
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

  using Offsets = std::vector<uint64_t>;  // of blocks, and their end

  static Offsets offsets(const std::vector<uint64_t> &counts) {
    Offsets out(counts.size() + 1);
    std::partial_sum(counts.begin(), counts.end(), out.begin() + 1);
    return out;
  }

  // What element i of rank's output must be. sent, received: the blocks of every rank's counts, and of this
  // rank's recv_counts.
  Value expected(const Problem &p, uint64_t i, const std::vector<Offsets> &sent,
                 const Offsets &received) const {
    Value value;
    value.state = reduces(p) ? State::finished : State::raw;
    value.index = i;
    const size_t rank = static_cast<size_t>(p.rank);
    const auto locate = [&](const Offsets &blocks) {
      return static_cast<size_t>(std::upper_bound(blocks.begin(), blocks.end(), i) - blocks.begin()) - 1;
    };
    size_t source = static_cast<size_t>(p.root);
    switch (p.op) {
      case DICOMM_REDUCE_SCATTER:
        value.index = i + sent[rank][rank];
        [[fallthrough]];
      case DICOMM_ALLREDUCE:
      case DICOMM_REDUCE:
        value.ranks = everybody_;
        return value;
      case DICOMM_SCATTER:
        value.index = i + sent[source][rank];
        break;
      case DICOMM_ALLTOALL:
        source = locate(received);
        value.index = i - received[source] + sent[source][rank];
        break;
      case DICOMM_ALLGATHER:
      case DICOMM_GATHER:
        source = locate(sent[rank]);
        value.index = i - sent[rank][source];
        break;
      default:
        break;
    }
    value.ranks = RankSet::of(static_cast<int>(source));
    return value;
  }

  std::string check_results() {
    std::vector<Offsets> sent;
    for (const Problem &p : job_.problems) {
      sent.push_back(offsets(p.counts));
      everybody_.add(RankSet::of(p.rank));
    }
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      const Problem &p = job_.problems[rank];
      const Offsets received = offsets(p.recv_counts);
      const uint64_t elements = output_count(p);
      for (uint64_t i = 0; i < elements; ++i) {
        const Value &value = cell(rank, Space::output, i);
        const Value want = expected(p, i, sent, received);
        if (value.state != want.state || value.ranks != want.ranks || value.index != want.index) {
          return fail("wrong result", rank, static_cast<uint32_t>(i));
        }
        if (p.op == DICOMM_ALLREDUCE && value.hash != cell(0, Space::output, i).hash) {
          return fail("ranks differ in the order of operands", rank, static_cast<uint32_t>(i));
        }
      }
      if (job_.in_place && can_coincide(p)) continue;
      for (const Value &value : ranks_[rank].memory[0]) {
        if (value.state != State::raw) return fail("input changed", rank, 0);
      }
    }
    return {};
  }

  const Job &job_;
  std::mt19937 &random_;
  std::vector<Rank> ranks_;
  std::vector<std::pair<size_t, uint32_t>> ready_;
  RankSet everybody_;
  std::string error_;
};

}  // namespace

RankSet RankSet::of(int rank) {
  const uint64_t r = static_cast<uint64_t>(rank);
  return {mix(mix(r, 1), r), mix(mix(r, 2), r), 1};
}

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
