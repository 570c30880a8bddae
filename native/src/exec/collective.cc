#include "exec/collective.h"

#include <algorithm>

#include "base/names.h"
#include "device/host/wire_codec.h"

namespace dicomm {

namespace {

// Room per element in the wire space: no encoding takes more, not even of one element.
constexpr uint64_t kWireRoom = 8;

}  // namespace

Collective *Collective::make(const Place &place, Plan &&plan) {
  Collective *made = plan.program->spares.take();
  if (made == nullptr) made = new Collective(place, plan);
  try {
    made->prepare(std::move(plan));
  } catch (...) {
    delete made;
    throw;
  }
  return made;
}

Collective::Collective(const Place &place, const Plan &plan)
    : Request(plan.opcode, 0),
      place_(place),
      sends_(plan.program->sends),
      receives_(plan.program->receives),
      chip_tasks_(plan.program->chip_tasks + (plan.program->schedule.on_chip ? 1 : 0)) {
  ready_.reserve(plan.program->missing.size());
}

void Collective::dispose() {
  const auto program = std::move(plan_.program);  // its end is the end of its spares
  program->spares.give(this);
}

void Collective::prepare(Plan &&plan) {
  renew(plan.opcode, plan.bytes);
  plan_ = std::move(plan);
  seq = plan_.seq;
  element_ = dicomm_dtype_size(plan_.arithmetic.dtype);
  wide_ = dicomm_dtype_size(accumulation_type(plan_.arithmetic.dtype));
  missing_ = plan_.program->missing;
  left_ = missing_.size();
  ready_.clear();
  turn_ = kNoTurn;
  posting_.clear();
  arriving_.clear();
  probed.clear();
  under_way_ = 0;
  ending_ = {};
  if (plan_.wire) place_.memory.provide(wire_, plan_.program->schedule.scratch(Space::wire) * kWireRoom);
  if (on_chip()) {
    use_chip_memory();
  } else {
    take_memory();
  }
  const auto &steps = plan_.program->schedule.steps;
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step &step = steps[i];
    const MatchKey key{true, static_cast<uint32_t>(seq), plan_.program->ordinal[i]};
    if (step.kind == StepKind::send && !carried(step.a)) {
      SendTask &task = sends_[plan_.program->slot[i]];
      task = {};
      task.owner = this;
      task.index = static_cast<uint32_t>(i);
      task.peer = step.peer;
      task.key = key;
      task.fingerprint = plan_.fingerprint;
      task.data = address(step.a);
      task.bytes = bytes_of(step.a);
    } else if (step.kind == StepKind::recv && !carried(step.dst)) {
      RecvTask &task = receives_[plan_.program->slot[i]];
      task.renew();
      task.owner = this;
      task.index = static_cast<uint32_t>(i);
      task.peer = step.peer;
      task.key = key;
      task.fingerprint = plan_.fingerprint;
      task.data = address(step.dst);
      task.capacity = bytes_of(step.dst);
    }
  }
}

void Collective::take_memory() {
  const Schedule &schedule = plan_.program->schedule;
  input_ = plan_.input.base();
  output_ = plan_.output.base();
  if (!plan_.input.contiguous() || plan_.stage_input) {
    packed_input_ = place_.memory.take(plan_.input.bytes());
    plan_.input.pack(packed_input_.get());
    input_ = packed_input_.get();
  }
  if (!plan_.output.contiguous()) {
    packed_output_ = place_.memory.take(plan_.output.bytes());
    // broadcast reads the root's output, and what no schedule writes must come back as it was.
    plan_.output.pack(packed_output_.get());
    output_ = packed_output_.get();
  }
  place_.memory.provide(acc_, schedule.scratch(Space::acc) * wide_);
  place_.memory.provide(stage_, schedule.scratch(Space::stage) * element_);
}

// The caller may keep the request for long. What is small stays for the next operation.
void Collective::release_memory() {
  plan_.chip.reset();
  packed_input_ = {};
  packed_output_ = {};
  acc_.trim();
  stage_.trim();
  wire_.trim();
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
    case Space::chip_acc:
      return plan_.chip->chip_acc.get() + span.offset * wide_;
    case Space::chip_stage:
      return plan_.chip->chip_stage.get() + span.offset * element_;
    case Space::host_input:
      return plan_.chip->host_input.get() + span.offset * element_;
    case Space::host_output:
      return plan_.chip->host_output.get() + span.offset * element_;
    case Space::wire:
      return wire_.get() + span.offset * kWireRoom;
    case Space::residual:
      return reinterpret_cast<std::byte *>(plan_.residual.get() + span.offset);
  }
  return nullptr;
}

uint64_t Collective::bytes_of(const Span &span) const {
  if (span.space == Space::wire) return encoded_bytes(*plan_.wire, span.count);
  return span.count * (span.space == Space::acc || span.space == Space::chip_acc ? wide_ : element_);
}

Form Collective::form(const Span &span) const {
  if (!plan_.reducing) return Form::plain;
  if (span.space == Space::acc || span.space == Space::chip_acc) return Form::wide;
  return span.space == Space::output || span.space == Space::host_output ? Form::plain : Form::raw;
}

void Collective::start() {
  for (size_t i = missing_.size(); i-- > 0;) {
    if (missing_[i] == 0) ready_.push_back(static_cast<uint32_t>(i));
  }
  retain();
  if (in_arena()) turn_ = place_.arena->enter(*this);
  const Status begun = on_chip() ? begin_on_chip() : Status();
  if (begun.ok()) {
    run();
    if (in_arena()) arena_changed();
  } else {
    place_.owner.on_collective_failed(describe(begun));
  }
  release();
}

void Collective::run() {
  if (running_) return;
  running_ = true;
  while (!ready_.empty() && !done() && ending_.ok()) {
    const uint32_t step = ready_.back();
    ready_.pop_back();
    const std::optional<Status> end = begin(step);
    if (!end) continue;
    if (!end->ok()) {
      ended(step, *end, plan_.program->schedule.steps[step].peer);
      break;
    }
    settle(step);
  }
  running_ = false;
  if (left_ == 0 && !done() && ending_.ok() && !awaits_turn()) finish();
}

std::optional<Status> Collective::begin(uint32_t index) {
  const Schedule &schedule = plan_.program->schedule;
  const Step &step = schedule.steps[index];
  if (schedule.in_lane(step)) return begin_chip_step(index);
  switch (step.kind) {
    case StepKind::send:
      if (carried(step.a)) return begin_carried(index);
      return place_.messenger.send(place_.channel, sends_[plan_.program->slot[index]]);
    case StepKind::recv:
      if (in_arena()) arriving_.push_back(index);
      if (carried(step.dst)) return begin_carried(index);
      return place_.messenger.receive(place_.channel, receives_[plan_.program->slot[index]]);
    case StepKind::copy:
      copy_elements(plan_.arithmetic, address(step.dst), form(step.dst), address(step.a), form(step.a),
                    step.a.count, step.finish);
      return Status();
    case StepKind::reduce:
      reduce_elements(plan_.arithmetic, address(step.dst), form(step.dst), address(step.a), form(step.a),
                      address(step.b), form(step.b), step.a.count, step.finish);
      return Status();
    case StepKind::encode:
      encode_elements(*plan_.wire, address(step.dst), reinterpret_cast<const float *>(address(step.a)),
                      reinterpret_cast<float *>(address(step.b)), step.a.count);
      return Status();
    case StepKind::decode:
      decode_elements(*plan_.wire, reinterpret_cast<float *>(address(step.dst)), address(step.a),
                      step.a.count);
      return Status();
    case StepKind::to_host:
    case StepKind::to_chip:
    case StepKind::ccl:
      return begin_chip_step(index);
  }
  return Status();
}

void Collective::settle(uint32_t step) {
  --left_;
  for (const uint32_t dependent : plan_.program->dependents.of(step)) {
    if (--missing_[dependent] == 0) ready_.push_back(dependent);
  }
}

void Collective::ended(uint32_t step, const Status &status, int peer) {
  if (done() || !ending_.ok()) return;
  if (!status.ok()) {
    place_.owner.on_collective_failed(describe(status.with([&](Failure &f) {
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
  if (on_chip() && plan_.chip->output) {
    const Status status = unpack_on_chip();
    if (!status.ok()) return place_.owner.on_collective_failed(describe(status));
    if (under_way_ > 0) return;
  }
  if (packed_output_) plan_.output.unpack(packed_output_.get());
  leave_arena();
  release_memory();
  place_.engine.complete(*this, {});
}

void Collective::fail(const Status &why) {
  if (done() || !ending_.ok()) return;
  forget_blame();
  leave_arena();
  for (SendTask &task : sends_) place_.messenger.cancel(place_.channel, task);
  for (RecvTask &task : receives_) place_.messenger.cancel(place_.channel, task);
  if (place_.lane != nullptr && under_way_ > 0) under_way_ -= place_.lane->take_back(*this);
  if (under_way_ > 0) return end_when_idle(describe(why));
  release_memory();
  place_.engine.complete(*this, describe(why));
}

void Collective::give_up(const Status &why) { place_.owner.on_collective_failed(describe(why)); }

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
  for (const uint32_t step : arriving_) {
    const int peer = plan_.program->schedule.steps[step].peer;
    if (!place_.arena->arrived(peer, turn_)) add(peer);
  }
  if (turn_ != kNoTurn && awaits_turn()) {
    for (const int rank : place_.arena->in_the_way(turn_)) add(rank);
  }
  return ranks;
}

bool Collective::needs(int rank, bool gone) const {
  for (const uint32_t step : arriving_) {
    if (plan_.program->schedule.steps[step].peer == rank && !place_.arena->there(rank, turn_)) return true;
  }
  if (turn_ != kNoTurn && awaits_turn()) {
    const std::vector<int> ranks = place_.arena->in_the_way(turn_);
    if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) return true;
  }
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
  if (ranks.empty() && under_way_ > 0) return "waiting for its chip and its island's library";
  if (ranks.empty()) return "while its data was on the way";
  std::string text = "waiting for " + place_.owner.describe_rank(ranks.front());
  if (ranks.size() > 1) text += concat(" and ", ranks.size() - 1, " more");
  return text;
}

Status Collective::describe(const Status &why) const {
  return why.with([&](Failure &f) {
    if (!f.op.empty()) return;  // another operation failed first; its story is the one to tell
    f.op = opcode_name(opcode);
    f.seq = seq;
    f.rank = place_.channel.rank;
    f.bytes = bytes;
    f.waited_ns = now() - started;
    if (f.peer < 0) {
      const std::vector<int> ranks = awaited();
      if (!ranks.empty()) f.peer = ranks.front();
    }
    if (f.peer >= 0) {
      f.peer_host = place_.channel.peers[static_cast<size_t>(f.peer)].host;
      f.path = place_.messenger.path(place_.channel, f.peer);
    }
  });
}

}  // namespace dicomm
