// A library of the NCCL family for tests: it moves bytes between threads of one process. Compiled several
// times:
//   DOUBLE_PREFIX   of its symbols, nccl or mccl
//   DOUBLE_OLD      without what came after 2.8: configurations, finalize, last error, premul_sum
//   DOUBLE_BROKEN   without AllReduce and GroupEnd
//   DOUBLE_HEADER   the vendor's own header, to hold the declarations below against it
// Where a communicator does not block, its work is done in a thread of its own.
#include <cstdint>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "doubles/control.h"
#include "doubles/loopback.h"

#define DOUBLE_JOIN_(a, b) a##b
#define DOUBLE_JOIN(a, b) DOUBLE_JOIN_(a, b)
#define N(name) DOUBLE_JOIN(DOUBLE_PREFIX, name)
#define EXPORT __attribute__((visibility("default")))

#ifdef DOUBLE_HEADER
#include DOUBLE_HEADER
#else
extern "C" {
typedef struct N(Comm) * N(Comm_t);
typedef struct {
  char internal[128];
} N(UniqueId);
typedef enum { N(Success) = 0, N(InternalError) = 3, N(InvalidArgument) = 4, N(InProgress) = 7 } N(Result_t);
typedef enum { N(Sum), N(Prod), N(Max), N(Min), N(Avg), N(NumOps), N(MaxRedOp) = 0x7fffffff } N(RedOp_t);
typedef enum { N(Int8) = 0, N(NumTypes) = 12 } N(DataType_t);
typedef enum { N(ScalarDevice) = 0, N(ScalarHostImmediate) = 1 } N(ScalarResidence_t);
typedef struct {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;
} N(Config_t);
typedef struct Stream *cudaStream_t;
}
#endif

namespace {

using namespace dicomm::doubles;

dicomm::test::Format format_of(int type) {
  using namespace dicomm::test;
  static const Format formats[] = {kInt8,    kUint8,   kInt32,   kUint32,   kInt64, kUint64,
                                   kFloat16, kFloat32, kFloat64, kBfloat16, kE4m3,  kE5m2};
  return formats[type];
}

}  // namespace

struct N(Comm) : Rank {
  bool blocking = true;
  int state = N(Success);  // under the clique's lock
  std::vector<double> factors;
  std::thread work;
};

namespace {

using Comm = N(Comm);
using Result = N(Result_t);

thread_local int group_depth = 0;
thread_local Comm *group_of = nullptr;
thread_local std::vector<Transfer> group;

// At once, or in the background where the communicator does not block.
Result run(Comm *comm, std::function<bool()> work) {
  if (comm->blocking) return work() ? N(Success) : N(InternalError);
  {
    const std::lock_guard lock(comm->clique->mutex);
    comm->state = N(InProgress);
  }
  if (comm->work.joinable()) comm->work.join();
  comm->work = std::thread([comm, work = std::move(work)] {
    const bool done = work();
    const std::lock_guard lock(comm->clique->mutex);
    comm->state = done ? N(Success) : N(InternalError);
  });
  return N(InProgress);
}

Result meet(Comm *comm, const Arguments &arguments, void (*work)(Meeting &)) {
  return run(comm, [=, number = comm->calls++] { return comm->meet(number, arguments, work); });
}

Result transfer(Comm *comm, const Transfer &one) {
  group.push_back(one);
  group_of = comm;
  if (group_depth > 0) return N(Success);
  return run(comm, [comm, all = std::exchange(group, {})] { return comm->deliver(all); });
}

Result join(Comm **out, int size, const N(UniqueId) & id, int rank, bool blocking) {
  if (id.internal[0] != 0x5a) return N(InvalidArgument);
  uint64_t number;
  std::memcpy(&number, id.internal + sizeof id - sizeof number, sizeof number);
  auto *comm = new Comm;
  comm->clique = clique_of(number);
  comm->rank = rank;
  comm->size = size;
  comm->blocking = blocking;
  *out = comm;
  return run(comm, [comm] { return comm->join(); });
}

Arguments arguments_of(const void *send, void *recv, size_t count, int type) {
  Arguments out;
  out.send = static_cast<const char *>(send);
  out.recv = static_cast<char *>(recv);
  out.count = count;
  out.format = format_of(type);
  return out;
}

Arguments arguments_of(const void *send, void *recv, size_t count, int type, int op, const Comm &comm) {
  Arguments out = arguments_of(send, recv, count, type);
  out.op = op < N(NumOps) ? op : sum;
  out.factor = op < N(NumOps) ? 1 : comm.factors[op - N(NumOps)];
  return out;
}

#define CALLED(...)                                                            \
  if (const int programmed = control().called(__VA_ARGS__); programmed != 0) { \
    return static_cast<Result>(programmed);                                    \
  }

}  // namespace

extern "C" {

EXPORT Result N(GetVersion)(int *version) {
  CALLED("GetVersion", "%s", "");
  *version = control().version;
  return N(Success);
}

EXPORT Result N(GetUniqueId)(N(UniqueId) * id) {
  CALLED("GetUniqueId", "%s", "");
  static uint64_t next = 1;
  const std::lock_guard lock(control().mutex);
  std::memset(id, 0x5a, sizeof *id);
  std::memcpy(id->internal + sizeof *id - sizeof next, &next, sizeof next);
  ++next;
  return N(Success);
}

EXPORT const char *N(GetErrorString)(Result result) {
  return result == N(InternalError) ? "internal error - of the double" : "some error of the double";
}

EXPORT Result N(CommInitRank)(Comm **out, int size, N(UniqueId) id, int rank) {
  CALLED("CommInitRank", "size=%d rank=%d", size, rank);
  return join(out, size, id, rank, true);
}

EXPORT Result N(CommDestroy)(Comm *comm) {
  CALLED("CommDestroy", "rank=%d", comm->rank);
  if (comm->work.joinable()) comm->work.join();
  delete comm;
  return N(Success);
}

EXPORT Result N(CommAbort)(Comm *comm) {
  CALLED("CommAbort", "rank=%d", comm->rank);
  comm->abort();
  if (comm->work.joinable()) comm->work.join();
  static std::vector<Comm *> aborted;  // not freed: a blocked caller is still on its way out
  const std::lock_guard lock(control().mutex);
  aborted.push_back(comm);
  return N(Success);
}

EXPORT Result N(CommGetAsyncError)(Comm *comm, Result *error) {
  const int programmed = control().async_error;
  const std::lock_guard lock(comm->clique->mutex);
  *error = static_cast<Result>(programmed != 0 ? programmed : comm->state);
  return N(Success);
}

#ifndef DOUBLE_OLD

EXPORT const char *N(GetLastError)(Comm *) { return "the double's last words"; }

EXPORT Result N(CommInitRankConfig)(Comm **out, int size, N(UniqueId) id, int rank, N(Config_t) * config) {
  CALLED("CommInitRankConfig", "size=%d rank=%d config={%zu %#x %u blocking=%d}", size, rank, config->size,
         config->magic, config->version, config->blocking);
  if (config->magic != 0xcafebeef) return N(InvalidArgument);
  return join(out, size, id, rank, config->blocking != 0);
}

EXPORT Result N(CommFinalize)(Comm *comm) {
  CALLED("CommFinalize", "rank=%d", comm->rank);
  return meet(comm, {}, do_nothing);  // all ranks are done
}

EXPORT Result N(RedOpCreatePreMulSum)(N(RedOp_t) * op, void *scalar, N(DataType_t) type,
                                      N(ScalarResidence_t) residence, Comm *comm) {
  CALLED("RedOpCreatePreMulSum", "type=%d residence=%d", type, residence);
  comm->factors.push_back(decode(format_of(type), scalar));
  *op = static_cast<N(RedOp_t)>(N(NumOps) + comm->factors.size() - 1);
  return N(Success);
}

EXPORT Result N(RedOpDestroy)(N(RedOp_t) op, Comm *) {
  CALLED("RedOpDestroy", "op=%d", op);
  return N(Success);
}

#endif

EXPORT Result N(Broadcast)(const void *send, void *recv, size_t count, N(DataType_t) type, int root,
                           Comm *comm, cudaStream_t stream) {
  CALLED("Broadcast", "send=%p recv=%p count=%zu type=%d root=%d stream=%p", send, recv, count, type, root,
         static_cast<void *>(stream));
  Arguments arguments = arguments_of(send, recv, count, type);
  arguments.root = root;
  return meet(comm, arguments, do_broadcast);
}

#ifndef DOUBLE_BROKEN
EXPORT Result N(AllReduce)(const void *send, void *recv, size_t count, N(DataType_t) type, N(RedOp_t) op,
                           Comm *comm, cudaStream_t stream) {
  CALLED("AllReduce", "send=%p recv=%p count=%zu type=%d op=%d stream=%p", send, recv, count, type, op,
         static_cast<void *>(stream));
  return meet(comm, arguments_of(send, recv, count, type, op, *comm), do_allreduce);
}
#endif

EXPORT Result N(Reduce)(const void *send, void *recv, size_t count, N(DataType_t) type, N(RedOp_t) op,
                        int root, Comm *comm, cudaStream_t stream) {
  CALLED("Reduce", "send=%p recv=%p count=%zu type=%d op=%d root=%d stream=%p", send, recv, count, type, op,
         root, static_cast<void *>(stream));
  Arguments arguments = arguments_of(send, recv, count, type, op, *comm);
  arguments.root = root;
  return meet(comm, arguments, do_reduce);
}

EXPORT Result N(AllGather)(const void *send, void *recv, size_t count, N(DataType_t) type, Comm *comm,
                           cudaStream_t stream) {
  CALLED("AllGather", "send=%p recv=%p count=%zu type=%d stream=%p", send, recv, count, type,
         static_cast<void *>(stream));
  return meet(comm, arguments_of(send, recv, count, type), do_allgather);
}

EXPORT Result N(ReduceScatter)(const void *send, void *recv, size_t count, N(DataType_t) type, N(RedOp_t) op,
                               Comm *comm, cudaStream_t stream) {
  CALLED("ReduceScatter", "send=%p recv=%p count=%zu type=%d op=%d stream=%p", send, recv, count, type, op,
         static_cast<void *>(stream));
  return meet(comm, arguments_of(send, recv, count, type, op, *comm), do_reduce_scatter);
}

EXPORT Result N(Send)(const void *send, size_t count, N(DataType_t) type, int peer, Comm *comm,
                      cudaStream_t stream) {
  CALLED("Send", "send=%p count=%zu type=%d peer=%d stream=%p", send, count, type, peer,
         static_cast<void *>(stream));
  return transfer(comm, {static_cast<const char *>(send), nullptr, count * format_of(type).bytes, peer});
}

EXPORT Result N(Recv)(void *recv, size_t count, N(DataType_t) type, int peer, Comm *comm,
                      cudaStream_t stream) {
  CALLED("Recv", "recv=%p count=%zu type=%d peer=%d stream=%p", recv, count, type, peer,
         static_cast<void *>(stream));
  return transfer(comm, {nullptr, static_cast<char *>(recv), count * format_of(type).bytes, peer});
}

EXPORT Result N(GroupStart)() {
  CALLED("GroupStart", "%s", "");
  ++group_depth;
  return N(Success);
}

#ifndef DOUBLE_BROKEN
EXPORT Result N(GroupEnd)() {
  CALLED("GroupEnd", "%s", "");
  --group_depth;
  if (group.empty()) return N(Success);
  return run(group_of, [comm = group_of, all = std::exchange(group, {})] { return comm->deliver(all); });
}
#endif

}  // extern "C"
