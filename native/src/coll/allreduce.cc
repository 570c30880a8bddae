// Allreduce. Every rank must end with the same bits, so a result is either computed once and copied, or
// computed on each rank from the same operands in the same order.
#include "coll/shards.h"
#include "coll/team.h"

namespace dicomm::coll {

Schedule allreduce_gather_all(const Problem &problem, const Topology &) {
  Schedule schedule;
  const Span input{Space::input, 0, problem.count};
  Slots inputs(schedule, Space::stage, problem.count, static_cast<size_t>(problem.size));
  Slots partial(schedule, Space::acc, problem.count, 1);
  std::vector<Operand> operands(static_cast<size_t>(problem.size), {input});
  Schedule::After sent;
  for (int i = 1; i < problem.size; ++i) {
    const int from = wrap(problem.rank - i, problem.size);
    operands[static_cast<size_t>(from)] = inputs.receive(from, problem.count);
    sent.push_back(schedule.send(wrap(problem.rank + i, problem.size), input));
  }
  Fold sum(schedule, partial);
  for (const Operand &operand : operands) sum.add(operand);
  sum.end({Space::output, 0, problem.count}, true, sent);
  return schedule;
}

Schedule allreduce_doubling(const Problem &problem, const Topology &) {
  Schedule schedule;
  doubling(schedule, everybody(problem), {}, {{Space::input, 0, problem.count}},
           {Space::output, 0, problem.count}, true);
  return schedule;
}

Schedule allreduce_ring(const Problem &problem, const Topology &) {
  Schedule schedule;
  const int rank = problem.rank;
  const int size = problem.size;
  const Blocks shards(problem.count, size);
  const ReducedShards own = reduce_shards_ring(schedule, problem, shards, shards.in(Space::output, rank));
  std::vector<uint32_t> here = own.finished;  // what goes on next, per chunk
  for (int t = 0; t + 1 < size; ++t) {
    const int sent = wrap(rank - t, size);
    const int received = wrap(rank - 1 - t, size);
    const Blocks send_pieces(shards.count(sent), own.chunks);
    const Blocks recv_pieces(shards.count(received), own.chunks);
    for (int c = 0; c < own.chunks; ++c) {
      uint32_t &step = here[static_cast<size_t>(c)];
      schedule.send(wrap(rank + 1, size),
                    part(shards.in(Space::output, sent), send_pieces.offset(c), send_pieces.count(c)),
                    {step});
      step =
          schedule.recv(wrap(rank - 1, size),
                        part(shards.in(Space::output, received), recv_pieces.offset(c), recv_pieces.count(c)),
                        {own.input_read[static_cast<size_t>(received * own.chunks + c)]});
    }
  }
  return schedule;
}

}  // namespace dicomm::coll
