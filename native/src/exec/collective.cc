#include "exec/collective.h"

#include <algorithm>
#include <map>

#include "base/names.h"

namespace dicomm {

Collective::Collective(Engine &engine, Messenger &messenger, Channel &channel, CollectiveOwner &owner,
                       Plan plan)
    : Request(plan.opcode, std::max(plan.input.bytes(), plan.output.bytes())),
      engine_(engine),
      messenger_(messenger),
      channel_(channel),
      owner_(owner),
      plan_(std::move(plan)),
      element_(dicomm_dtype_size(plan_.arithmetic.dtype)),
      wide_(dicomm_dtype_size(accumulation_type(plan_.arithmetic.dtype))),
      left_(plan_.schedule.steps.size()) {
  seq = plan_.seq;
  const Schedule &schedule = plan_.schedule;
  input_ = plan_.input.base();
  output_ = plan_.output.base();
  if (!plan_.input.contiguous() || plan_.stage_input) {
    packed_input_ = allocate_scratch(plan_.input.bytes());
    plan_.input.pack(packed_input_.get());
    input_ = packed_input_.get();
  }
  if (!plan_.output.contiguous()) {
    packed_output_ = allocate_scratch(plan_.output.bytes());
    // broadcast reads the root's output, and what no schedule writes must come back as it was.
    plan_.output.pack(packed_output_.get());
    output_ = packed_output_.get();
  }
  acc_ = allocate_scratch(schedule.acc_count * wide_);
  stage_ = allocate_scratch(schedule.stage_count * element_);

  const size_t n = schedule.steps.size();
  missing_.resize(n);
  first_dependent_.assign(n + 1, 0);
  slot_.resize(n);
  std::map<int, uint64_t> sent, received;  // ordinals per peer
  size_t sends = 0, receives = 0;
  for (size_t i = 0; i < n; ++i) {
    const Step &step = schedule.steps[i];
    missing_[i] = step.dep_count;
    for (uint32_t d = 0; d < step.dep_count; ++d) ++first_dependent_[schedule.deps[step.first_dep + d] + 1];
    if (step.kind == StepKind::send) slot_[i] = static_cast<uint32_t>(sends++);
    if (step.kind == StepKind::recv) slot_[i] = static_cast<uint32_t>(receives++);
  }
  for (size_t i = 0; i < n; ++i) first_dependent_[i + 1] += first_dependent_[i];
  dependents_.resize(schedule.deps.size());
  std::vector<uint32_t> fill(first_dependent_.begin(), first_dependent_.end() - 1);
  sends_ = std::vector<SendTask>(sends);
  receives_ = std::vector<RecvTask>(receives);
  for (size_t i = 0; i < n; ++i) {
    const Step &step = schedule.steps[i];
    for (uint32_t d = 0; d < step.dep_count; ++d) {
      dependents_[fill[schedule.deps[step.first_dep + d]]++] = static_cast<uint32_t>(i);
    }
    if (step.kind == StepKind::send) {
      SendTask &task = sends_[slot_[i]];
      task.owner = this;
      task.index = static_cast<uint32_t>(i);
      task.peer = step.peer;
      task.key = {true, static_cast<uint32_t>(seq), sent[step.peer]++};
      task.fingerprint = plan_.fingerprint;
      task.data = address(step.a);
      task.bytes = bytes_of(step.a);
    } else if (step.kind == StepKind::recv) {
      RecvTask &task = receives_[slot_[i]];
      task.owner = this;
      task.index = static_cast<uint32_t>(i);
      task.peer = step.peer;
      task.key = {true, static_cast<uint32_t>(seq), received[step.peer]++};
      task.fingerprint = plan_.fingerprint;
      task.data = address(step.dst);
      task.capacity = bytes_of(step.dst);
    }
  }
  ready_.reserve(n);
}

std::byte *Collective::address(const Span &span) const {
  switch (span.space) {
    case Space::input:
      return input_ + span.offset * element_;
    case Space::output:
      return output_ + span.offset * element_;
    case Space::acc:
      return acc_.get() + span.offset * wide_;
    case Space::stage:
      return stage_.get() + span.offset * element_;
  }
  return nullptr;
}

uint64_t Collective::bytes_of(const Span &span) const {
  return span.count * (span.space == Space::acc ? wide_ : element_);
}

Form Collective::form(const Span &span) const {
  if (!plan_.reducing) return Form::plain;
  if (span.space == Space::acc) return Form::wide;
  return span.space == Space::output ? Form::plain : Form::raw;
}

void Collective::start() {
  for (size_t i = missing_.size(); i-- > 0;) {
    if (missing_[i] == 0) ready_.push_back(static_cast<uint32_t>(i));
  }
  retain();
  run();
  release();
}

void Collective::run() {
  if (running_) return;
  running_ = true;
  while (!ready_.empty() && !done()) {
    const uint32_t step = ready_.back();
    ready_.pop_back();
    const std::optional<Status> end = begin(step);
    if (!end) continue;
    if (!end->ok()) {
      ended(step, *end, plan_.schedule.steps[step].peer);
      break;
    }
    settle(step);
  }
  running_ = false;
  if (left_ == 0 && !done()) finish();
}

std::optional<Status> Collective::begin(uint32_t index) {
  const Step &step = plan_.schedule.steps[index];
  switch (step.kind) {
    case StepKind::send:
      return messenger_.send(channel_, sends_[slot_[index]]);
    case StepKind::recv:
      return messenger_.receive(channel_, receives_[slot_[index]]);
    case StepKind::copy:
      copy_elements(plan_.arithmetic, address(step.dst), form(step.dst), address(step.a), form(step.a),
                    step.a.count, step.finish);
      return Status();
    case StepKind::reduce:
      reduce_elements(plan_.arithmetic, address(step.dst), form(step.dst), address(step.a), form(step.a),
                      address(step.b), form(step.b), step.a.count, step.finish);
      return Status();
  }
  return Status();
}

void Collective::settle(uint32_t step) {
  --left_;
  for (uint32_t d = first_dependent_[step]; d < first_dependent_[step + 1]; ++d) {
    if (--missing_[dependents_[d]] == 0) ready_.push_back(dependents_[d]);
  }
}

void Collective::ended(uint32_t step, const Status &status, int peer) {
  if (done()) return;
  if (!status.ok()) {
    owner_.on_collective_failed(describe(status.with([&](Failure &f) {
      if (f.peer < 0) f.peer = peer;
    })));
    return;
  }
  settle(step);
  retain();
  run();
  release();
}

void Collective::on_sent(SendTask &task, const Status &status) { ended(task.index, status, task.peer); }
void Collective::on_received(RecvTask &task, const Status &status) { ended(task.index, status, task.peer); }

void Collective::finish() {
  if (packed_output_) plan_.output.unpack(packed_output_.get());
  engine_.complete(*this, {});
}

void Collective::fail(const Status &why) {
  if (done()) return;
  for (SendTask &task : sends_) messenger_.cancel(channel_, task);
  for (RecvTask &task : receives_) messenger_.cancel(channel_, task);
  engine_.complete(*this, describe(why));
}

void Collective::give_up(const Status &why) { owner_.on_collective_failed(describe(why)); }

std::vector<int> Collective::awaited() const {
  std::vector<int> ranks;
  const auto add = [&](int rank) {
    if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) ranks.push_back(rank);
  };
  for (const RecvTask &task : receives_) {
    if (task.state == RecvTask::State::posted) add(task.peer);
  }
  for (const SendTask &task : sends_) {
    if (task.state == SendTask::State::offered) add(task.peer);
  }
  return ranks;
}

bool Collective::needs(int rank, bool gone) const {
  for (const RecvTask &task : receives_) {
    if (task.peer != rank) continue;
    if (task.state == RecvTask::State::posted || (gone && task.state == RecvTask::State::arriving))
      return true;
  }
  for (const SendTask &task : sends_) {
    if (task.peer != rank) continue;
    if (task.state == SendTask::State::offered || (gone && task.state == SendTask::State::streaming))
      return true;
    if (gone && task.state == SendTask::State::queued) return true;
  }
  return false;
}

std::string Collective::waiting_for() const {
  const std::vector<int> ranks = awaited();
  if (ranks.empty()) return "while its data was on the way";
  std::string text = "waiting for " + owner_.describe_rank(ranks.front());
  if (ranks.size() > 1) text += concat(" and ", ranks.size() - 1, " more");
  return text;
}

Status Collective::describe(const Status &why) const {
  return why.with([&](Failure &f) {
    if (!f.op.empty()) return;  // another operation failed first; its story is the one to tell
    f.op = opcode_name(opcode);
    f.seq = seq;
    f.rank = channel_.rank;
    f.bytes = bytes;
    f.waited_ns = now() - started;
    if (f.peer < 0) {
      const std::vector<int> ranks = awaited();
      if (!ranks.empty()) f.peer = ranks.front();
    }
    if (f.peer >= 0) {
      f.peer_host = channel_.peers[static_cast<size_t>(f.peer)].host;
      f.path = messenger_.path(channel_, f.peer);
    }
  });
}

}  // namespace dicomm
