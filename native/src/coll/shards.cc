#include "coll/shards.h"

namespace dicomm::coll {

ReducedShards reduce_shards_ring(Schedule &schedule, const Problem &problem, const Blocks &shards,
                                 Span result) {
  const int rank = problem.rank;
  const int size = problem.size;
  const int right = wrap(rank + 1, size);
  const int left = wrap(rank - 1, size);
  ReducedShards out;
  out.chunks = chunk_count(shards.largest(), problem.element, kMostChunks);
  out.input_read.assign(static_cast<size_t>(size * out.chunks), Schedule::kNone);
  out.finished.assign(static_cast<size_t>(out.chunks), Schedule::kNone);
  if (size == 1) {
    for (int c = 0; c < out.chunks; ++c) {
      const Blocks pieces(shards.count(0), out.chunks);
      const Span a = part(shards.in(Space::input, 0), pieces.offset(c), pieces.count(c));
      out.finished[static_cast<size_t>(c)] =
          schedule.copy(part(result, pieces.offset(c), pieces.count(c)), a, true);
      out.input_read[static_cast<size_t>(c)] = out.finished[static_cast<size_t>(c)];
    }
    return out;
  }
  // First round: a neighbour's input comes as it is into stage. Later rounds: partial results come into one
  // of two slots of acc, so that one is received while the other is sent on. Every chunk has its own place in
  // a slot, whatever the shard's size.
  const uint64_t room = Blocks(shards.largest(), out.chunks).largest();
  const uint64_t slot_size = room * static_cast<uint64_t>(out.chunks);
  const uint64_t stage_base = schedule.scratch(Space::stage);
  const uint64_t acc_base = schedule.scratch(Space::acc);
  schedule.scratch(Space::stage) += slot_size;
  if (size > 2) schedule.scratch(Space::acc) += 2 * slot_size;

  const size_t chunks = static_cast<size_t>(out.chunks);
  std::vector<uint32_t> reduced(chunks, Schedule::kNone);  // last round's result
  std::vector<uint32_t> sent_on[2] = {reduced, reduced};   // [slot][chunk]: after it the place is free
  for (int t = 0; t + 1 < size; ++t) {
    const int sent = wrap(rank - 1 - t, size);
    const int received = wrap(rank - 2 - t, size);
    const bool last = t + 2 == size;
    const Blocks send_pieces(shards.count(sent), out.chunks);
    const Blocks recv_pieces(shards.count(received), out.chunks);
    const size_t slot = static_cast<size_t>(t % 2);
    const auto place = [&](size_t which, int c, uint64_t n) {
      return Span{Space::acc, acc_base + which * slot_size + static_cast<uint64_t>(c) * room, n};
    };
    for (int c = 0; c < out.chunks; ++c) {
      const size_t k = static_cast<size_t>(c);
      const uint64_t n = recv_pieces.count(c);
      const Span own = part(shards.in(Space::input, received), recv_pieces.offset(c), n);
      const Span partial = place(slot, c, n);
      Span arriving = partial;
      uint32_t free = sent_on[slot][k];
      if (t == 0) {
        out.input_read[static_cast<size_t>(sent) * chunks + k] = schedule.send(
            right, part(shards.in(Space::input, sent), send_pieces.offset(c), send_pieces.count(c)));
        arriving = {Space::stage, stage_base + static_cast<uint64_t>(c) * room, n};
      } else {  // what the last round left in the other slot goes on
        sent_on[1 - slot][k] = schedule.send(right, place(1 - slot, c, send_pieces.count(c)), {reduced[k]});
      }
      const uint32_t arrived = schedule.recv(left, arriving, {free});
      const Span dst = last ? part(result, recv_pieces.offset(c), n) : partial;
      reduced[k] = schedule.reduce(dst, arriving, own, last, {arrived});
      out.input_read[static_cast<size_t>(received) * chunks + k] = reduced[k];
    }
  }
  out.finished = reduced;
  return out;
}

}  // namespace dicomm::coll
