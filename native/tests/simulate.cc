#include "simulate.h"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "simulate_memory.h"

namespace dicomm::simulate {

namespace {

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
  std::vector<Value> memory[kSpaces];  // by Interval::memory
  std::vector<StepState> steps;        // and one more, where the last one's followers end
  std::vector<uint32_t> followers;     // step by step
  size_t left = 0;
  std::vector<uint32_t> lane;  // its steps, in their order
  size_t lane_at = 0;          // the first that has not completed
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
    const std::vector<uint64_t> sizes = sizes_of(p, schedule);
    for (size_t i = 0; i < kSpaces; ++i) state.memory[i].resize(sizes[i]);
    state.steps.resize(n + 1);
    state.left = n;
    std::vector<uint32_t> next(n + 1);  // place for a step's next follower
    for (uint32_t i = 0; i < n; ++i) {
      const Step &step = schedule.steps[i];
      state.steps[i].waiting = step.dep_count;
      state.steps[i].partner = partner[i];
      state.steps[i].peer = static_cast<uint32_t>(step.peer);
      state.steps[i].kind = step.kind;
      if (schedule.in_lane(step)) state.lane.push_back(i);
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
    const Step &step = job_.schedules[rank].steps[index];
    if (job_.schedules[rank].in_lane(step)) {
      state.started = true;
      return advance_lane(rank);
    }
    if (state.kind == StepKind::copy || state.kind == StepKind::reduce) {
      compute(rank, index, step);
      return complete(rank, index);
    }
    if (state.kind != StepKind::send && state.kind != StepKind::recv) {
      deliver(rank, index, step.dst, read(rank, step.a));
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

  // A lane's steps run one after another; a call of the library when all members have come to it.
  void advance_lane(size_t rank) {
    Rank &state = ranks_[rank];
    while (state.lane_at < state.lane.size() && error_.empty()) {
      const uint32_t index = state.lane[state.lane_at];
      const Step &step = job_.schedules[rank].steps[index];
      if (!state.steps[index].started) return;
      if (step.kind == StepKind::ccl) {
        if (!call(rank, index, step)) return;
        continue;
      }
      compute(rank, index, step);
      pass(rank);
    }
  }

  void pass(size_t rank) {
    Rank &state = ranks_[rank];
    complete(rank, state.lane[state.lane_at++]);
  }

  // Between begin and end: a send leaves at once, a receive waits for its message.
  bool call(size_t rank, uint32_t index, const Step &step) {
    const auto way = [&](size_t from, size_t to) -> std::deque<Message> & { return posted_[{from, to}]; };
    const size_t peer = static_cast<size_t>(step.peer);
    switch (step.call) {
      case CclCall::begin:
      case CclCall::end:
        pass(rank);
        return true;
      case CclCall::send:
        way(rank, peer).emplace_back(read(rank, step.a), read(rank, step.a) + step.a.count);
        pass(rank);
        advance_lane(peer);
        return true;
      case CclCall::recv: {
        auto &messages = way(peer, rank);
        if (messages.empty()) return false;
        if (messages.front().size() != step.dst.count) error_ = fail("counts differ", rank, index);
        deliver(rank, index, step.dst, messages.front().data());
        messages.pop_front();
        pass(rank);
        return true;
      }
      default:
        return call_together(rank, step);
    }
  }

  bool call_together(size_t rank, const Step &step) {
    std::vector<size_t> members;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      if (job_.island_of[r] == job_.island_of[rank]) members.push_back(r);
    }
    std::vector<const Step *> calls;
    for (const size_t member : members) {
      const Rank &state = ranks_[member];
      if (state.lane_at == state.lane.size()) return false;
      const uint32_t index = state.lane[state.lane_at];
      calls.push_back(&job_.schedules[member].steps[index]);
      if (calls.back()->kind != StepKind::ccl || !state.steps[index].started) return false;
      if (calls.back()->call != step.call || calls.back()->peer != step.peer) {
        error_ = fail("an island's members call different things", member, index);
        return false;
      }
    }
    std::vector<Message> results(members.size());
    for (size_t i = 0; i < members.size(); ++i) results[i] = result_of(members, calls, i);
    if (!error_.empty()) return false;
    for (size_t i = 0; i < members.size(); ++i) {
      const uint32_t index = ranks_[members[i]].lane[ranks_[members[i]].lane_at];
      if (results[i].size() != calls[i]->dst.count) {
        error_ = fail("counts differ", members[i], index);
        return false;
      }
      deliver(members[i], index, calls[i]->dst, results[i].data());
    }
    for (const size_t member : members) pass(member);
    for (const size_t member : members) {
      if (member != rank) advance_lane(member);
    }
    return true;
  }

  Message result_of(const std::vector<size_t> &members, const std::vector<const Step *> &calls, size_t i) {
    const Step &step = *calls[i];
    const bool root = step.peer < 0 || static_cast<size_t>(step.peer) == members[i];
    Message out;
    if (step.call == CclCall::broadcast) {
      if (root) return out;
      for (size_t m = 0; m < members.size(); ++m) {
        if (members[m] == static_cast<size_t>(step.peer)) append(out, members[m], calls[m]->a);
      }
    } else if (step.call == CclCall::allgather) {
      for (size_t m = 0; m < members.size(); ++m) append(out, members[m], calls[m]->a);
    } else if (root) {
      for (size_t m = 0; m < members.size(); ++m) {
        Span a = calls[m]->a;
        if (step.call == CclCall::reduce_scatter)
          a = {a.space, a.offset + i * step.dst.count, step.dst.count};
        add(out, members[m], a);
      }
    }
    return out;
  }

  void append(Message &out, size_t rank, const Span &a) {
    out.insert(out.end(), read(rank, a), read(rank, a) + a.count);
  }

  // The library adds up what it is given, in the members' order.
  void add(Message &sum, size_t rank, const Span &a) {
    const Problem &p = job_.problems[rank];
    Message values;
    append(values, rank, a);
    for (size_t i = 0; i < values.size(); ++i) {
      Value &value = values[i];
      const bool as_it_is =
          value.state == State::partial || (value.state == State::raw && !p.widened && !p.scaled);
      if (!as_it_is) error_ = fail("the library reduces what is not ready for it", rank, 0);
      value.state = State::partial;
      if (sum.size() <= i) {
        sum.push_back(value);
        continue;
      }
      if (sum[i].index != value.index) error_ = fail("combined different elements", rank, 0);
      sum[i].ranks.add(value.ranks);
      sum[i].hash = mix(sum[i].hash, value.hash);
    }
    if (values.size() != sum.size()) error_ = fail("counts differ", rank, 0);
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
        const bool fits = value.state == State::raw        ? raw_space(dst.space)
                          : value.state == State::finished ? !wide_space(dst.space)
                                                           : wide_space(dst.space) || !p.widened;
        if ((!fits && dst.space != Space::wire) || dst.space == Space::input)
          error_ = fail("received into the wrong space", rank, index);
      }
      cell(rank, dst.space, dst.offset + i) = value;
    }
  }

  // An operand of a reduction as an accumulator.
  Value operand(size_t rank, uint32_t index, const Span &span, uint64_t i) {
    Value value = cell(rank, span.space, span.offset + i);
    if (value.state == State::unset) error_ = fail("read what was never written", rank, index);
    if (!reduces(job_.problems[rank])) return value;
    if (raw_space(span.space) != (value.state == State::raw))
      error_ = fail("premul is applied not once", rank, index);
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
          if (wide_space(step.dst.space)) error_ = fail("finished into acc", rank, index);
          value.state = State::finished;
        } else if (raw_space(step.dst.space) || (!wide_space(step.dst.space) && p.widened)) {
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
      if (has_data(p)) everybody_.add(RankSet::of(p.rank));
    }
    const auto first = std::find_if(job_.problems.begin(), job_.problems.end(), has_data);
    const size_t reference = static_cast<size_t>(first - job_.problems.begin());
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
        if (p.op == DICOMM_ALLREDUCE && value.hash != cell(reference, Space::output, i).hash) {
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
  std::map<std::pair<size_t, size_t>, std::deque<Message>> posted_;  // from, to
  RankSet everybody_;
  std::string error_;
};

}  // namespace

Job make_job(const Algorithm &algorithm, std::vector<Problem> problems, const Topology &topology,
             bool in_place) {
  Job job;
  job.in_place = in_place;
  for (const Problem &problem : problems) job.schedules.push_back(algorithm.build(problem, topology));
  for (const RankInfo &rank : topology.ranks) job.island_of.push_back(rank.island_index);
  job.problems = std::move(problems);
  return job;
}

std::string execute(const Job &job, std::mt19937 &random) { return Machine(job, random).run(); }

}  // namespace dicomm::simulate
