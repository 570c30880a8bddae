#include "comm/plan.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/names.h"
#include "base/operations.h"
#include "coll/arena.h"
#include "coll/through_host.h"

namespace dicomm {

namespace {

bool rooted(int32_t opcode) {
  return opcode == DICOMM_BROADCAST || opcode == DICOMM_REDUCE || opcode == DICOMM_GATHER ||
         opcode == DICOMM_SCATTER;
}

// FNV-1a, 32 bits.
uint32_t hash(uint32_t state, const void *data, size_t size) {
  const auto *bytes = static_cast<const unsigned char *>(data);
  for (size_t i = 0; i < size; ++i) state = (state ^ bytes[i]) * 16777619u;
  return state;
}

Status wrong(const dicomm_op &op, const std::string &what) {
  return Status::make(DICOMM_INVALID_ARGUMENT, opcode_name(op.opcode), ": ", what);
}

// Elements per rank of a list that holds one block per rank, or one block to be cut into equal parts.
Status per_rank(const dicomm_op &op, const BlockList &list, int size, const char *what,
                std::vector<uint64_t> &counts) {
  const uint64_t n = static_cast<uint64_t>(size);
  if (list.size() == n) {
    for (size_t i = 0; i < n; ++i) counts.push_back(list.count_of(i));
    return {};
  }
  if (list.size() != 1) {
    return wrong(op, concat(what, " has ", list.size(), " blocks; it needs one, or one for each of the ",
                            size, " ranks"));
  }
  if (list.count() % n != 0) {
    return wrong(
        op, concat(what, " has ", list.count(), " elements, which do not divide among ", size, " ranks"));
  }
  counts.assign(n, list.count() / n);
  return {};
}

Status one_block(const dicomm_op &op, const BlockList &list, const char *what) {
  if (list.size() == 1) return {};
  return wrong(op, concat(what, " has ", list.size(), " blocks; it needs one"));
}

Status equal_counts(const dicomm_op &op, const char *what, uint64_t have, uint64_t want) {
  if (have == want) return {};
  return wrong(op, concat(what, " has ", have, " elements; it needs ", want));
}

Status check_types(const dicomm_op &op) {
  if (dicomm_dtype_size(op.dtype) == 0) return wrong(op, concat("unknown dtype ", op.dtype));
  if (!is_reduction(op.opcode)) return {};
  if (std::string_view(reduce_name(op.reduce)) == "?")
    return wrong(op, concat("unknown reduce op ", op.reduce));
  if (!reduction_supported(static_cast<dicomm_dtype>(op.dtype), static_cast<dicomm_reduce>(op.reduce))) {
    return Status::make(DICOMM_NOT_SUPPORTED, opcode_name(op.opcode), ": ", reduce_name(op.reduce),
                        " is not defined for ", dtype_name(op.dtype));
  }
  return {};
}

Status rooted_counts(const dicomm_op &op, const BlockList &at_root, const BlockList &own,
                     const char *root_name, const char *own_name, Problem &problem) {
  const size_t rank = static_cast<size_t>(problem.rank);
  DICOMM_TRY(one_block(op, own, own_name));
  problem.uneven = op.uneven != 0;
  if (problem.rank != problem.root) {
    problem.counts.assign(static_cast<size_t>(problem.size), problem.uneven ? 0 : own.count());
    problem.counts[rank] = own.count();
    return {};
  }
  DICOMM_TRY(per_rank(op, at_root, problem.size, root_name, problem.counts));
  for (const uint64_t count : problem.counts) {
    if (!problem.uneven && count != problem.counts[0]) {
      return wrong(op, concat(root_name, " has blocks of ", problem.counts[0], " and ", count,
                              " elements; say on every rank that the counts are uneven"));
    }
  }
  return equal_counts(op, own_name, own.count(), problem.counts[rank]);
}

// Of an allreduce or reduce in a communicator that has reducers. Then input and output of a reducer are
// empty.
Status assign_role(const dicomm_op &op, const Planning &planning, Problem &problem) {
  const auto helps = [&](int rank) { return planning.topology.ranks[static_cast<size_t>(rank)].helps(); };
  if (planning.workers == 0) return wrong(op, "every rank is a reducer, so there is nothing to reduce");
  if (op.opcode == DICOMM_REDUCE && helps(problem.root)) {
    return wrong(op, concat("root ", problem.root, " is a reducer, which gets no result; choose a worker"));
  }
  problem.role = helps(problem.rank) ? Problem::Role::reducer : Problem::Role::worker;
  return {};
}

// A reducer's blocks have no memory, only the count of the workers' buffers.
Status reducer_count(const dicomm_op &op, size_t element, uint64_t &count) {
  const char *const what = "this rank is a reducer, which gives no buffer and gets none";
  const auto has_memory = [](const dicomm_block *blocks, int32_t n) {
    return n > 1 || (n == 1 && (blocks == nullptr || blocks->data != nullptr));
  };
  if (has_memory(op.send, op.nsend) || has_memory(op.recv, op.nrecv))
    return wrong(op, concat(what, "; say how many elements the workers' have, and their dtype"));
  const auto most = INT64_MAX / static_cast<int64_t>(element);
  if (op.nsend != 1 || op.send->count < 0 || op.send->count > most)
    return wrong(op, concat(what, ", but says how many elements the workers' have"));
  count = static_cast<uint64_t>(op.send->count);
  return {};
}

// Checks the lists against each other and fills in counts.
Status describe(const dicomm_op &op, BlockList &input, BlockList &output, Problem &problem) {
  const size_t rank = static_cast<size_t>(problem.rank);
  const bool root = problem.rank == problem.root;
  switch (op.opcode) {
    case DICOMM_BARRIER:
      return {};
    case DICOMM_BROADCAST:
      DICOMM_TRY(one_block(op, output, "recv"));
      problem.count = output.count();
      if (!root) input = {};
      return input.empty() ? Status() : equal_counts(op, "send", input.count(), output.count());
    case DICOMM_ALLREDUCE:
      DICOMM_TRY(one_block(op, input, "send"));
      DICOMM_TRY(one_block(op, output, "recv"));
      problem.count = input.count();
      return equal_counts(op, "recv", output.count(), input.count());
    case DICOMM_REDUCE:
      DICOMM_TRY(one_block(op, input, "send"));
      problem.count = input.count();
      if (!root) {
        output = {};
        return {};
      }
      DICOMM_TRY(one_block(op, output, "recv"));
      return equal_counts(op, "recv", output.count(), input.count());
    case DICOMM_ALLGATHER:
      DICOMM_TRY(one_block(op, input, "send"));
      DICOMM_TRY(per_rank(op, output, problem.size, "recv", problem.counts));
      return equal_counts(op, "send", input.count(), problem.counts[rank]);
    case DICOMM_REDUCE_SCATTER:
      DICOMM_TRY(one_block(op, output, "recv"));
      DICOMM_TRY(per_rank(op, input, problem.size, "send", problem.counts));
      return equal_counts(op, "recv", output.count(), problem.counts[rank]);
    case DICOMM_ALLTOALL:
      DICOMM_TRY(per_rank(op, input, problem.size, "send", problem.counts));
      return per_rank(op, output, problem.size, "recv", problem.recv_counts);
    case DICOMM_GATHER:
      if (!root) output = {};
      return rooted_counts(op, output, input, "recv", "send", problem);
    case DICOMM_SCATTER:
      if (!root) input = {};
      return rooted_counts(op, input, output, "send", "recv", problem);
    default:
      return Status::make(DICOMM_INVALID_ARGUMENT, "unknown operation ", op.opcode);
  }
}

// Input that shares memory with output in another way than schedules allow for (coll/schedule.h).
bool needs_staging(const BlockList &input, const BlockList &output, size_t element, const Problem &problem) {
  if (!input.contiguous() || !output.contiguous()) return false;  // one of them is packed anyway
  if (!input.overlaps(output)) return false;
  uint64_t before = 0;
  for (int r = 0; r < problem.rank && r < static_cast<int>(problem.counts.size()); ++r) {
    before += problem.counts[static_cast<size_t>(r)];
  }
  switch (problem.op) {
    case DICOMM_ALLREDUCE:
    case DICOMM_REDUCE:
      return input.base() != output.base();
    case DICOMM_ALLGATHER:
    case DICOMM_GATHER:
      return input.base() != output.base() + before * element;
    case DICOMM_REDUCE_SCATTER:
    case DICOMM_SCATTER:
      return output.base() != input.base() + before * element;
    default:
      return true;
  }
}

Fingerprint fingerprint_of(const dicomm_op &op, const Problem &problem, const Algorithm &algorithm) {
  Fingerprint f;
  f.opcode = static_cast<uint8_t>(op.opcode);
  f.dtype = static_cast<uint8_t>(op.dtype);
  f.reduce = is_reduction(op.opcode) ? static_cast<uint8_t>(op.reduce) : 0;
  f.root = rooted(op.opcode) ? op.peer : -1;
  f.plan = hash(2166136261u, algorithm.name, std::strlen(algorithm.name));
  if (problem.wire) f.plan = hash(f.plan, &*problem.wire, sizeof *problem.wire);
  f.count = problem.count;
  if (op.opcode == DICOMM_ALLGATHER || op.opcode == DICOMM_REDUCE_SCATTER) {
    f.plan = hash(f.plan, problem.counts.data(), problem.counts.size() * sizeof problem.counts[0]);
    for (const uint64_t count : problem.counts) f.count += count;
  } else if ((op.opcode == DICOMM_GATHER || op.opcode == DICOMM_SCATTER) && !problem.uneven) {
    f.count = problem.counts[0];
  }
  return f;
}

// Where the blocks lie. Without elements they count as the chip's.
Status find_memory(const dicomm_op &op, const Chip *chip, std::initializer_list<const BlockList *> lists,
                   bool &on_chip) {
  on_chip = chip != nullptr;
  if (!on_chip) return {};
  uint64_t here = 0, there = 0;
  bool strided = false;
  for (const BlockList *list : lists) {
    strided = strided || list->strided();
    list->each([&](const std::byte *data, uint64_t, uint64_t) { ++(chip->owns(data) ? there : here); });
  }
  on_chip = here == 0;
  if (here > 0 && there > 0) {
    return wrong(op, "some blocks are in the memory of the chip and others in the host's; put all in one");
  }
  if (on_chip && strided && !chip->unified()) {
    return Status::make(DICOMM_NOT_SUPPORTED, opcode_name(op.opcode),
                        ": a buffer on a chip is not one run of elements; make it contiguous");
  }
  return {};
}

}  // namespace

Status plan_point_to_point(const dicomm_op &op, int size, const Chip *chip, BlockList &blocks,
                           bool &on_chip) {
  if (dicomm_dtype_size(op.dtype) == 0) return wrong(op, concat("unknown dtype ", op.dtype));
  const bool any = op.opcode == DICOMM_RECV && op.peer == DICOMM_ANY_SOURCE;
  if (!any && (op.peer < 0 || op.peer >= size)) {
    return wrong(op, concat("peer ", op.peer, " is not a rank of this communicator (0 to ", size - 1, ")"));
  }
  const bool send = op.opcode == DICOMM_SEND;
  DICOMM_TRY(BlockList::from(send ? op.send : op.recv, send ? op.nsend : op.nrecv,
                             dicomm_dtype_size(op.dtype), send ? "send" : "recv", blocks));
  if (!send && blocks.overlaps_itself()) return wrong(op, "recv has elements that share memory");
  DICOMM_TRY(find_memory(op, chip, {&blocks}, on_chip));
  return one_block(op, blocks, send ? "send" : "recv");
}

namespace {

std::shared_ptr<const Program> program_for(const Problem &problem, const Planning &planning) {
  std::shared_ptr<const Program> program = planning.programs.find(problem);
  if (program) return program;
  const Algorithm &algorithm = *planning.rules.choose(problem, planning.topology).algorithm;
  Schedule schedule = algorithm.build(problem, planning.topology);
  if (problem.on_chip && !schedule.on_chip) schedule = coll::through_host(problem, std::move(schedule));
  program = Program::compile(algorithm, std::move(schedule), uses_arena(algorithm, problem));
  planning.programs.keep(problem, program);
  return program;
}

}  // namespace

Status plan_collective(const dicomm_op &op, const Planning &planning, Collective::Plan &plan) {
  Problem problem;
  problem.op = static_cast<dicomm_opcode>(op.opcode);
  problem.rank = planning.rank;
  problem.size = planning.topology.size();
  problem.arena = planning.arena;
  DICOMM_TRY(check_types(op));
  if (rooted(op.opcode)) {
    if (op.peer < 0 || op.peer >= problem.size) {
      return wrong(
          op, concat("root ", op.peer, " is not a rank of this communicator (0 to ", problem.size - 1, ")"));
    }
    problem.root = op.peer;
  }
  const auto dtype = static_cast<dicomm_dtype>(op.dtype);
  problem.element = dicomm_dtype_size(op.dtype);
  problem.widened = is_reduction(op.opcode) && accumulation_type(dtype) != dtype;
  if (planning.workers < problem.size && (op.opcode == DICOMM_ALLREDUCE || op.opcode == DICOMM_REDUCE))
    DICOMM_TRY(assign_role(op, planning, problem));
  const bool gives_data = problem.role != Problem::Role::reducer;
  if (!gives_data) {
    DICOMM_TRY(reducer_count(op, problem.element, problem.count));
  } else if (op.opcode != DICOMM_BARRIER) {
    DICOMM_TRY(BlockList::from(op.send, op.nsend, problem.element, "send", plan.input));
    DICOMM_TRY(BlockList::from(op.recv, op.nrecv, problem.element, "recv", plan.output));
    DICOMM_TRY(describe(op, plan.input, plan.output, problem));
  }
  if (plan.output.overlaps_itself()) return wrong(op, "recv has elements that share memory");

  if (planning.chip != nullptr && op.opcode != DICOMM_BARRIER && gives_data) {
    DICOMM_TRY(find_memory(op, planning.chip, {&plan.input, &plan.output}, plan.on_chip));
    problem.on_chip = plan.on_chip;
    plan.stream = op.stream;
  }
  const auto reduce = static_cast<dicomm_reduce>(op.reduce);
  if (is_reduction(op.opcode)) {
    problem.scaled = scales_inputs(reduce, dtype);
    // What rounding loses of a buffer is kept by its address, which a reducer does not know.
    const bool encodes = is_sum(reduce) && dtype == DICOMM_FLOAT32 && problem.role == Problem::Role::peer;
    if (encodes) problem.wire = planning.wire;
  }
  problem.libraries = planning.libraries.use(problem, accumulation_type(dtype), reduce);
  plan.program = program_for(problem, planning);
  if (plan.program->schedule.scratch(Space::residual) > 0) plan.wire = problem.wire;
  plan.opcode = problem.op;
  plan.bytes =
      gives_data ? std::max(plan.input.bytes(), plan.output.bytes()) : problem.count * problem.element;
  plan.reducing = is_reduction(op.opcode);
  plan.fingerprint = fingerprint_of(op, problem, *plan.program->algorithm);
  plan.stage_input = needs_staging(plan.input, plan.output, problem.element, problem);
  plan.arithmetic.dtype = dtype;
  plan.arithmetic.op = reduce;
  plan.arithmetic.size = problem.role == Problem::Role::peer ? problem.size : planning.workers;
  if (plan.reducing && op.reduce == DICOMM_PREMUL_SUM && gives_data) {
    if (op.factor_data != nullptr) {
      set_factor(plan.arithmetic, op.factor_data);
    } else {
      set_factor(plan.arithmetic, op.factor);
    }
  }
  return {};
}

std::string describe_call(const Fingerprint &f) {
  if (f.opcode == DICOMM_BARRIER) return "barrier";
  std::string text = concat(opcode_name(f.opcode), "(", dtype_name(f.dtype));
  if (is_reduction(f.opcode)) text += concat(", ", reduce_name(f.reduce));
  if (f.root >= 0) text += concat(", root ", f.root);
  if (f.opcode != DICOMM_ALLTOALL) text += concat(", ", f.count, " elements");
  return text + ")";
}

}  // namespace dicomm
