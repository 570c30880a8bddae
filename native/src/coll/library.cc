// All ranks are one island: the vendor's library does the operation. What it cannot do with the elements as
// they are (sums in a wider type, scaled inputs) the chip converts before and after, piece by piece.
#include "coll/build.h"
#include "coll/fold.h"
#include "coll/landing.h"

namespace dicomm::coll {

namespace {

constexpr uint64_t kConvertBytes = 4 << 20;
constexpr size_t kSlots = 2;
constexpr Span kNowhere{Space::output, 0, 0};

bool converts(const Problem &problem) { return problem.widened || problem.scaled; }

Schedule on_chip(const Problem &problem) {
  Schedule schedule;
  schedule.on_chip = true;
  std::vector<int> everybody;
  for (int r = 0; r < problem.size; ++r) everybody.push_back(r);
  agree(schedule, everybody, problem.rank);
  return schedule;
}

// `call` on the members' `input`, converted in pieces; the result into `output` where this rank gets it.
void reduce_converted(Schedule &schedule, Slots &slots, CclCall call, int root, bool gets, Span input,
                      Span output) {
  for (uint64_t at = 0; at == 0 || at < input.count; at += slots.room()) {
    const uint64_t count = std::min(slots.room(), input.count - at);
    const Slots::Slot slot = slots.take(count);
    const Span nowhere{Space::chip_acc, slot.span.offset, 0};
    const uint32_t wide = schedule.copy(slot.span, part(input, at, count), false, {slot.used});
    slot.used = schedule.ccl(call, root, gets ? slot.span : nowhere, slot.span, {wide});
    if (gets) slot.used = schedule.copy(part(output, at, count), slot.span, true, {slot.used});
  }
}

// For inputs of up to `most` elements.
Slots converting(Schedule &schedule, const Problem &problem, uint64_t most) {
  const uint64_t room = std::clamp<uint64_t>(kConvertBytes / problem.element, 1, std::max<uint64_t>(most, 1));
  return Slots(schedule, Space::chip_acc, room, kSlots);
}

}  // namespace

Schedule broadcast_library(const Problem &problem, const Topology &) {
  Schedule schedule = on_chip(problem);
  const Span buffer{Space::output, 0, problem.count};
  const bool root = problem.rank == problem.root;
  schedule.ccl(CclCall::broadcast, problem.root, root ? kNowhere : buffer, root ? buffer : kNowhere);
  return schedule;
}

Schedule allreduce_library(const Problem &problem, const Topology &) {
  Schedule schedule = on_chip(problem);
  const Span input{Space::input, 0, problem.count}, output{Space::output, 0, problem.count};
  if (converts(problem)) {
    Slots slots = converting(schedule, problem, problem.count);
    reduce_converted(schedule, slots, CclCall::allreduce, -1, true, input, output);
  } else {
    schedule.copy(output, output, true, {schedule.ccl(CclCall::allreduce, -1, output, input)});
  }
  return schedule;
}

Schedule reduce_library(const Problem &problem, const Topology &) {
  Schedule schedule = on_chip(problem);
  const bool root = problem.rank == problem.root;
  const Span input{Space::input, 0, problem.count}, output{Space::output, 0, root ? problem.count : 0};
  if (converts(problem)) {
    Slots slots = converting(schedule, problem, problem.count);
    reduce_converted(schedule, slots, CclCall::reduce, problem.root, root, input, output);
  } else {
    const uint32_t sum = schedule.ccl(CclCall::reduce, problem.root, output, input);
    if (root) schedule.copy(output, output, true, {sum});
  }
  return schedule;
}

Schedule reduce_scatter_library(const Problem &problem, const Topology &) {
  Schedule schedule = on_chip(problem);
  const Blocks blocks(problem.counts);
  const Span output{Space::output, 0, blocks.count(problem.rank)};
  const bool even = blocks.largest() * static_cast<uint64_t>(problem.size) == blocks.total();
  if (even && !converts(problem)) {
    const uint32_t sum = schedule.ccl(CclCall::reduce_scatter, -1, output, {Space::input, 0, blocks.total()});
    schedule.copy(output, output, true, {sum});
    return schedule;
  }
  Slots slots = converting(schedule, problem, blocks.largest());
  for (int r = 0; r < problem.size; ++r) {
    const bool gets = r == problem.rank;
    const Span input = blocks.in(Space::input, r);
    if (converts(problem)) {
      reduce_converted(schedule, slots, CclCall::reduce, r, gets, input, output);
    } else {
      const uint32_t sum = schedule.ccl(CclCall::reduce, r, gets ? output : kNowhere, input);
      if (gets) schedule.copy(output, output, true, {sum});
    }
  }
  return schedule;
}

Schedule allgather_library(const Problem &problem, const Topology &) {
  Schedule schedule = on_chip(problem);
  const Blocks blocks(problem.counts);
  const Span input{Space::input, 0, blocks.count(problem.rank)};
  if (blocks.largest() * static_cast<uint64_t>(problem.size) == blocks.total()) {
    schedule.ccl(CclCall::allgather, -1, {Space::output, 0, blocks.total()}, input);
    return schedule;
  }
  for (int r = 0; r < problem.size; ++r) {
    const bool gives = r == problem.rank;
    const Span block = blocks.in(Space::output, r);
    schedule.ccl(CclCall::broadcast, r, gives ? kNowhere : block, gives ? input : kNowhere);
    if (gives) schedule.copy(block, input, false);
  }
  return schedule;
}

namespace {

// What this rank sends to and receives from each rank, all at once; its own part is copied.
Schedule exchange(const Problem &problem, const std::vector<Span> &out, const std::vector<Span> &in) {
  Schedule schedule = on_chip(problem);
  const size_t me = static_cast<size_t>(problem.rank);
  if (out[me].count > 0) schedule.copy(in[me], out[me], false);
  uint32_t last = schedule.ccl(CclCall::begin, -1, kNowhere, kNowhere);
  for (int i = 1; i < problem.size; ++i) {
    const int to = wrap(problem.rank + i, problem.size), from = wrap(problem.rank - i, problem.size);
    const Span &gives = out[static_cast<size_t>(to)], &gets = in[static_cast<size_t>(from)];
    if (gives.count > 0) last = schedule.ccl(CclCall::send, to, kNowhere, gives, {last});
    if (gets.count > 0) last = schedule.ccl(CclCall::recv, from, gets, kNowhere, {last});
  }
  schedule.ccl(CclCall::end, -1, kNowhere, kNowhere, {last});
  return schedule;
}

std::vector<Span> all_of(const Blocks &blocks, Space space) {
  std::vector<Span> out;
  for (int r = 0; r < blocks.size(); ++r) out.push_back(blocks.in(space, r));
  return out;
}

std::vector<Span> only(const Problem &problem, int rank, Span span) {
  std::vector<Span> out(static_cast<size_t>(problem.size), kNowhere);
  out[static_cast<size_t>(rank)] = span;
  return out;
}

}  // namespace

Schedule alltoall_library(const Problem &problem, const Topology &) {
  return exchange(problem, all_of(Blocks(problem.counts), Space::input),
                  all_of(Blocks(problem.recv_counts), Space::output));
}

Schedule gather_library(const Problem &problem, const Topology &) {
  const uint64_t own = problem.counts[static_cast<size_t>(problem.rank)];
  const auto gives = only(problem, problem.root, {Space::input, 0, own});
  if (problem.rank != problem.root) return exchange(problem, gives, only(problem, 0, kNowhere));
  return exchange(problem, gives, all_of(Blocks(problem.counts), Space::output));
}

Schedule scatter_library(const Problem &problem, const Topology &) {
  const uint64_t own = problem.counts[static_cast<size_t>(problem.rank)];
  const auto gets = only(problem, problem.root, {Space::output, 0, own});
  if (problem.rank != problem.root) return exchange(problem, only(problem, 0, kNowhere), gets);
  return exchange(problem, all_of(Blocks(problem.counts), Space::input), gets);
}

}  // namespace dicomm::coll
