// Contract: an Algorithm is a pure function that turns a Problem into a Schedule for one rank.
//
// No I/O, clock, randomness or environment: the same Problem gives the same Schedule on every rank that asks,
// so ranks agree without talking. Schedules are plain data that can be printed, simulated and executed.
//
// Words. The spaces hold elements, addressed by offset from 0:
//   input   the caller's send blocks, one after another, in the operation's dtype; never written
//   output  the caller's recv blocks, one after another, in dtype; broadcast: also the root's input
//   acc     scratch in the accumulation type: float32 for 8- and 16-bit floats, else dtype
//   stage   scratch in dtype: elements of a rank's input as they are, or finished results under way
// Where a rank's buffers lie in the memory of its chip (Schedule::on_chip), input and output are there, acc
// and stage on the host as always, and four more spaces appear:
//   chip_acc, chip_stage        as acc and stage, in the chip's memory
//   host_input, host_output     images of input and output on the host
// Where what crosses between groups is encoded in fewer bytes (Problem::wire):
//   wire      encoded elements under way
//   residual  by element of the operation's buffer: what encoding lost of it, kept from one operation on the
//             same buffer to the next
// Scratch sizes are the Schedule's to choose. An operation is widened when its accumulation type is not
// dtype; when it is not, output may hold partial results as acc does.
//
// Memory of input and output may coincide exactly: in allreduce and reduce the whole, in allgather and
// gather (root) input with the rank's own block of output, in reduce_scatter and scatter (root) output with
// the rank's own block of input. Schedules never write output while a read of the same place of input is
// still to come or going on. The executor stages every other overlap. A copy onto the same memory without
// change does nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dicomm/dicomm.h"
#include "topology/topology.h"

namespace dicomm {

enum class Space : uint8_t {
  input,
  output,
  acc,
  stage,
  chip_acc,
  chip_stage,
  host_input,
  host_output,
  wire,
  residual
};
inline constexpr size_t kSpaces = 10;

struct Span {
  Space space = Space::input;
  uint64_t offset = 0;  // elements
  uint64_t count = 0;   // elements; 0 is legal everywhere and still sends a message
};

enum class StepKind : uint8_t {
  send,    // a -> peer. Spans in acc travel in the accumulation type
  recv,    // peer -> dst
  copy,    // dst = a
  reduce,  // dst = a op b, elementwise, in this order (rounding depends on it); dst may be a or b
  to_host,
  to_chip,  // dst = a, between the chip's memory and the host's; the element types are equal
  encode,   // dst (wire) = a + b (residual), rounded; b = what rounding lost
  decode,   // dst = a (wire)
  ccl,      // a call of the vendor's library, by all ranks of the island at the same place in their order
};

// What a ccl step calls. `peer`: the root, or whom the message goes to or comes from, as a rank of the
// operation.
enum class CclCall : uint8_t {
  reduce,          // a of every member -> dst of the root
  broadcast,       // a of the root -> dst of every other member
  allreduce,       // a of every member -> dst
  allgather,       // a of every member -> dst, in the order of members
  reduce_scatter,  // a of every member, a part for each -> dst
  begin,
  send,
  recv,
  end,  // sends and receives between begin and end happen together
};

// ccl steps, and copy and reduce steps on chip spaces, form the rank's lane: they start one after another in
// step order, on one stream. In the members of an island the ccl steps of all lanes must match in order.
// copy and reduce convert between the spaces' types. What they read from input or stage in a reducing
// operation is first multiplied by premul_sum's factor and made logical for bool; send moves it as it is, and
// only into a peer's stage. `finish` divides for avg and rounds to dtype: exactly once on the way of every
// result to output.

struct Step {
  StepKind kind = StepKind::copy;
  bool finish = false;
  CclCall call = CclCall::reduce;
  int32_t peer = -1;
  Span a{}, b{}, dst{};
  uint32_t first_dep = 0;  // into Schedule::deps
  uint32_t dep_count = 0;
};

// Steps start as soon as the steps they depend on have completed; dependencies name earlier steps only. A
// send completes when its span may be overwritten, a recv when its span is filled.
// The k-th send to a peer in step order is received by the k-th recv from us in that peer's schedule; both
// spans have the same count and type. Two steps that may run at once do not touch the same elements unless
// both only read.
struct Schedule {
  std::string algorithm;
  std::vector<Step> steps;
  std::vector<uint32_t> deps;
  bool on_chip = false;
  uint64_t count_of[kSpaces] = {};  // elements of the scratch spaces

  // Builders: append a step that waits for `after` (but kNone), return its index.
  using After = std::vector<uint32_t>;
  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t send(int peer, Span a, const After &after = {});
  uint32_t recv(int peer, Span dst, const After &after = {});
  uint32_t copy(Span dst, Span a, bool finish, const After &after = {});
  uint32_t reduce(Span dst, Span a, Span b, bool finish, const After &after = {});
  uint32_t to_host(Span dst, Span a, const After &after = {});
  uint32_t to_chip(Span dst, Span a, const After &after = {});
  uint32_t encode(Span wire, Span a, uint64_t at, const After &after = {});  // at: a's place in the buffer
  uint32_t decode(Span dst, Span wire, const After &after = {});
  uint32_t ccl(CclCall call, int peer, Span dst, Span a, const After &after = {});
  // One step for all of `after`; moves nothing.
  uint32_t join(const After &after);

  uint64_t &scratch(Space space) { return count_of[static_cast<size_t>(space)]; }
  uint64_t scratch(Space space) const { return count_of[static_cast<size_t>(space)]; }
  bool in_lane(const Step &step) const {
    const bool computes = step.kind == StepKind::copy || step.kind == StepKind::reduce;
    return step.kind == StepKind::ccl || (computes && lies_on_chip(step.dst.space));
  }
  // Is it the chip's memory?
  bool lies_on_chip(Space space) const {
    if (space == Space::input || space == Space::output) return on_chip;
    return space == Space::chip_acc || space == Space::chip_stage;
  }
  std::string describe() const;  // a line per step

  // Which steps wait for step i: steps[first[i]] up to steps[first[i + 1]], in their order.
  struct Dependents {
    std::vector<uint32_t> first;  // one more at the end
    std::vector<uint32_t> steps;
    std::span<const uint32_t> of(uint32_t step) const {
      return {steps.data() + first[step], steps.data() + first[step + 1]};
    }
  };
  Dependents dependents() const;

  uint32_t append(Step step, const After &after);
};

// One operation as all ranks see it. Every rank holds the same values but for `rank`, `role` and, in
// alltoall, the counts.
struct Problem {
  dicomm_opcode op = DICOMM_BARRIER;
  int rank = 0, size = 1, root = 0;
  size_t element = 1;    // bytes of dtype
  bool widened = false;  // the accumulation type is not dtype
  bool scaled = false;   // reductions: inputs are not used as they are (premul_sum, bool)
  // allreduce and reduce where some ranks only help: reducers have neither input nor output.
  enum class Role : uint8_t { peer, worker, reducer } role = Role::peer;
  // Whose libraries know the types and the arithmetic: of no island, of the only one, of all of several.
  enum class Libraries : uint8_t { none, one, several } libraries = Libraries::none;
  uint64_t count = 0;  // broadcast, allreduce, reduce: elements of the buffer
  // allgather, gather: what each rank contributes; reduce_scatter, scatter: what each rank gets. Equal
  // on every rank. alltoall: what this rank sends to each.
  std::vector<uint64_t> counts;
  std::vector<uint64_t> recv_counts;  // alltoall: what this rank receives from each
  // gather, scatter: the counts differ; only the root knows them all, elsewhere others' are 0.
  bool uneven = false;
  std::optional<dicomm_dtype> wire;  // what crosses between groups is encoded so
  bool on_chip = false;              // this rank's buffers are its chip's memory
  bool arena = false;                // all ranks share memory for small messages; coll/arena.h
  // The size the rules go by, equal on all ranks: the largest buffer; 0 in alltoall and where counts are
  // uneven, because ranks do not know one another's counts.
  uint64_t bytes() const;
  bool operator==(const Problem &) const = default;
};

struct Algorithm {
  dicomm_opcode op;
  const char *name;     // "ring", "doubling", ...: what users write in rules
  const char *summary;  // one line for `dicomm explain`
  bool (*fits)(const Problem &);
  Schedule (*build)(const Problem &, const Topology &);
  bool one_round = false;  // a message a peer, all of them there from the start, up to kOneRoundBytes
};

// coll/registry.cc, the only file that names the algorithms.
std::span<const Algorithm> algorithms();
const Algorithm *find_algorithm(dicomm_opcode op, std::string_view name);

}  // namespace dicomm
