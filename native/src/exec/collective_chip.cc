// What a Collective does on its rank's chip.

#include <algorithm>
#include <utility>

#include "base/operations.h"
#include "exec/collective.h"

namespace dicomm {

void Collective::take_chip_memory(Chip &chip, Plan &plan) {
  const Schedule &schedule = plan.program->schedule;
  const uint64_t element = dicomm_dtype_size(plan.arithmetic.dtype);
  const uint64_t wide = dicomm_dtype_size(accumulation_type(plan.arithmetic.dtype));
  plan.chip = std::make_unique<ChipMemory>();
  const auto packs = [&](const BlockList &list) { return !list.contiguous() || !plan.on_chip; };
  const bool joins = plan.opcode == DICOMM_BROADCAST;  // its input goes into the output
  if (!joins && (packs(plan.input) || plan.stage_input)) {
    plan.chip->input = chip.memory().take(plan.input.bytes());
  }
  if (packs(plan.output)) plan.chip->output = chip.memory().take(plan.output.bytes());
  if (!plan.on_chip) plan.chip->carried = chip.pinned().take(plan.input.bytes() + plan.output.bytes());
  plan.chip->chip_acc = chip.memory().take(schedule.scratch(Space::chip_acc) * wide);
  plan.chip->chip_stage = chip.memory().take(schedule.scratch(Space::chip_stage) * element);
  plan.chip->acc = chip.pinned().take(schedule.scratch(Space::acc) * wide);
  plan.chip->stage = chip.pinned().take(schedule.scratch(Space::stage) * element);
  plan.chip->host_input = chip.pinned().take(schedule.scratch(Space::host_input) * element);
  plan.chip->host_output = chip.pinned().take(schedule.scratch(Space::host_output) * element);
}

void Collective::use_chip_memory() {
  input_ = plan_.chip->input ? plan_.chip->input.get() : plan_.input.base();
  output_ = plan_.chip->output ? plan_.chip->output.get() : plan_.output.base();
  std::swap(acc_, plan_.chip->acc);
  std::swap(stage_, plan_.chip->stage);
  for (ChipTask &task : chip_tasks_) {
    task.owner = this;
    task.ready = false;
    task.quiet = false;
  }
}

// Everything of the chip waits for the buffers, and the lane's order is settled before anything runs.
Status Collective::begin_on_chip() {
  if (plan_.on_chip) DICOMM_TRY(place_.chip->follow(plan_.stream, &place_.lane->stream()));
  DICOMM_TRY(pack_on_chip());
  const auto &steps = plan_.program->schedule.steps;
  for (uint32_t i = 0; i < steps.size(); ++i) {
    const Step &step = steps[i];
    if (step.kind != StepKind::to_host && step.kind != StepKind::to_chip &&
        !plan_.program->schedule.in_lane(step))
      continue;
    ChipTask &task = chip_tasks_[plan_.program->slot[i]];
    task.index = i;
    if (step.kind == StepKind::to_host || step.kind == StepKind::to_chip) continue;
    const bool grouped =
        step.call == CclCall::begin || step.call == CclCall::send || step.call == CclCall::recv;
    task.quiet = step.kind == StepKind::ccl ? grouped : step.dst.count == 0;
    task.calls_library =
        step.kind == StepKind::ccl && step.call != CclCall::begin && step.call != CclCall::end;
    task.bytes = std::max(bytes_of(step.a), bytes_of(step.dst));
    ++under_way_;
    place_.lane->append(task);
  }
  return {};
}

// Buffers that are not one run of the chip's memory are copied into one. broadcast reads the root's output,
// and what no schedule writes must come back as it was.
Status Collective::pack_on_chip() {
  Stream &stream = place_.lane->stream();
  const auto pack = [&](const BlockList &list, std::byte *into) -> Status {
    if (into == nullptr) return {};
    if (place_.chip->unified()) {
      list.pack(into);
      return {};
    }
    if (!plan_.on_chip) {
      std::byte *const host =
          plan_.chip->carried.get() + (into == plan_.chip->input.get() ? 0 : plan_.input.bytes());
      list.pack(host);
      return place_.chip->to_chip(stream, into, host, list.bytes());
    }
    Status status;
    list.each([&](const std::byte *data, uint64_t bytes, uint64_t offset) {
      if (status.ok()) status = stream.copy_on_device(into + offset, data, bytes);
    });
    return status;
  };
  if (plan_.opcode == DICOMM_BROADCAST && !plan_.input.empty()) DICOMM_TRY(join_buffers(stream));
  DICOMM_TRY(pack(plan_.input, plan_.chip->input.get()));
  DICOMM_TRY(pack(plan_.output, plan_.chip->output.get()));
  if (!plan_.chip->input && !plan_.chip->output) return {};
  return place_.chip->follow(stream);
}

// Schedules of a broadcast know one buffer: the root's input goes there first.
Status Collective::join_buffers(Stream &stream) {
  if (place_.chip->unified() || !plan_.on_chip) {
    const Scratch copy = place_.memory.take(plan_.input.bytes());
    plan_.input.pack(copy.get());
    plan_.output.unpack(copy.get());
  } else {
    DICOMM_TRY(stream.copy_on_device(plan_.output.base(), plan_.input.base(), plan_.input.bytes()));
    DICOMM_TRY(place_.chip->follow(stream));
  }
  return {};
}

Status Collective::unpack_on_chip() {
  const std::byte *from = plan_.chip->output.get();
  if (place_.chip->unified()) {
    plan_.output.unpack(from);
    plan_.chip->output = {};
    return {};
  }
  Stream &stream = place_.lane->stream();
  if (plan_.on_chip) {
    Status status;
    plan_.output.each([&](std::byte *data, uint64_t bytes, uint64_t offset) {
      if (status.ok()) status = stream.copy_on_device(data, from + offset, bytes);
    });
    DICOMM_TRY(status);
  } else {
    DICOMM_TRY(place_.chip->to_host(stream, plan_.chip->carried.get() + plan_.input.bytes(), from,
                                    plan_.output.bytes()));
  }
  DICOMM_TRY(place_.chip->watch(chip_tasks_.back(), stream));
  ++under_way_;
  return {};
}

std::optional<Status> Collective::begin_chip_step(uint32_t index) {
  const Schedule &schedule = plan_.program->schedule;
  const Step &step = schedule.steps[index];
  ChipTask &task = chip_tasks_[plan_.program->slot[index]];
  if (schedule.in_lane(step)) {
    place_.lane->set_ready(task);
    return std::nullopt;
  }
  if (step.dst.count == 0) return Status();
  const Status status =
      step.kind == StepKind::to_host
          ? place_.chip->to_host(task, address(step.dst), address(step.a), bytes_of(step.a))
          : place_.chip->to_chip(task, address(step.dst), address(step.a), bytes_of(step.a));
  if (!status.ok()) return status;
  ++under_way_;
  return std::nullopt;
}

Status Collective::run_on_lane(const ChipTask &task, Stream &stream, CclGroup *group) {
  const Step &step = plan_.program->schedule.steps[task.index];
  return step.kind == StepKind::ccl ? call(step, stream, *group) : compute(step, stream);
}

// Chips without arithmetic still copy; the plan asks no more of them.
Status Collective::compute(const Step &step, Stream &stream) const {
  const Arithmetic &arithmetic = plan_.arithmetic;
  const Form from = form(step.a), to = form(step.dst);
  if (step.kind == StepKind::reduce) {
    return stream.reduce(arithmetic, address(step.dst), to, address(step.a), from, address(step.b),
                         form(step.b), step.a.count, step.finish);
  }
  const bool scales = from == Form::raw && scales_inputs(arithmetic.op, arithmetic.dtype);
  const bool divides = step.finish && arithmetic.op == DICOMM_AVG;
  if (plan_.reducing && (scales || divides || bytes_of(step.a) != bytes_of(step.dst))) {
    return stream.copy_convert(arithmetic, address(step.dst), to, address(step.a), from, step.a.count,
                               step.finish);
  }
  if (step.a.count == 0 || address(step.dst) == address(step.a)) return {};
  return stream.copy_on_device(address(step.dst), address(step.a), bytes_of(step.a));
}

// What is moved and not reduced goes as bytes: then the library need not know the type.
Status Collective::call(const Step &step, Stream &stream, CclGroup &group) const {
  const std::byte *a = address(step.a);
  std::byte *dst = address(step.dst);
  const int peer = step.peer < 0 ? -1 : place_.lane->place_of(step.peer);
  const bool wide = step.a.space == Space::chip_acc || step.dst.space == Space::chip_acc;
  const dicomm_dtype dtype = wide ? accumulation_type(plan_.arithmetic.dtype) : plan_.arithmetic.dtype;
  const dicomm_reduce op = is_sum(plan_.arithmetic.op) ? DICOMM_SUM : plan_.arithmetic.op;
  switch (step.call) {
    case CclCall::reduce:
      return group.reduce(a, peer == group.rank() ? dst : nullptr, step.a.count, dtype, op, peer, stream);
    case CclCall::broadcast: {
      const bool root = peer == group.rank();
      const Span &span = root ? step.a : step.dst;
      return group.broadcast(root ? a : dst, root ? const_cast<std::byte *>(a) : dst, bytes_of(span),
                             DICOMM_UINT8, peer, stream);
    }
    case CclCall::allreduce:
      return group.allreduce(a, dst, step.a.count, dtype, op, stream);
    case CclCall::allgather:
      return group.allgather(a, dst, bytes_of(step.a), DICOMM_UINT8, stream);
    case CclCall::reduce_scatter:
      return group.reduce_scatter(a, dst, step.dst.count, dtype, op, stream);
    case CclCall::begin:
      return group.begin();
    case CclCall::send:
      return group.send(a, bytes_of(step.a), DICOMM_UINT8, peer, stream);
    case CclCall::recv:
      return group.recv(dst, bytes_of(step.dst), DICOMM_UINT8, peer, stream);
    case CclCall::end:
      return group.end();
  }
  return {};
}

void Collective::on_chip_done(ChipTask &task, const Status &status) {
  --under_way_;
  if (!ending_.ok()) {
    if (under_way_ > 0) return;
    place_.engine.reactor().cancel(patience_);
    release_memory();
    if (!done()) place_.engine.complete(*this, ending_);
    release();
    return;
  }
  if (&task != &chip_tasks_.back()) {
    // Libraries tell of failed work by themselves, not through the stream.
    const bool called = plan_.program->schedule.steps[task.index].kind == StepKind::ccl;
    const Status told = status.ok() && called ? place_.lane->async_error() : status;
    return called && !told.ok() ? blame_library(told) : ended(task.index, told, -1);
  }
  if (!status.ok()) return place_.owner.on_collective_failed(describe(status));
  if (!plan_.on_chip) plan_.output.unpack(plan_.chip->carried.get() + plan_.input.bytes());
  release_memory();
  place_.engine.complete(*this, {});
}

// A library fails when one of its ranks dies or aborts, and mostly cannot say more. The communicator hears of
// that too, by name; it gets the time to.
void Collective::blame_library(const Status &why) {
  if (blamed_) return;
  blamed_ = true;
  retain();
  blame_ = place_.engine.reactor().at(now() + kBlame, [this, why] {
    blamed_ = false;
    place_.owner.on_collective_failed(describe(why));
    release();
  });
}

void Collective::forget_blame() {
  if (!std::exchange(blamed_, false)) return;
  place_.engine.reactor().cancel(blame_);
  release();
}

// The chip still reads and writes the memory: it stays until the last task has ended, or, where none is heard
// of for long, for ever.
void Collective::end_when_idle(const Status &why) {
  ending_ = why;
  deadline = kNever;
  retain();
  patience_ =
      place_.engine.reactor().at(now() + kChipPatience, [this] { place_.engine.complete(*this, ending_); });
}

}  // namespace dicomm
