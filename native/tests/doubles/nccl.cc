// A library of the NCCL family for tests: it moves bytes between threads of one process. Compiled several
// times:
//   DOUBLE_PREFIX   of its symbols, nccl or mccl
//   DOUBLE_OLD      without what came after 2.8: configurations, finalize, last error, premul_sum
//   DOUBLE_BROKEN   without AllReduce and GroupEnd
//   DOUBLE_HEADER   the vendor's own header, to hold the declarations below against it
// Streams do their work at once, so a collective here waits for the other ranks before it returns, or, when
// the communicator does not block, in a thread of its own.
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "doubles/control.h"
#include "number_formats.h"

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

using dicomm::doubles::control;
using dicomm::test::Format;

Format format_of(int type) {
  using namespace dicomm::test;
  static const Format formats[] = {kInt8,    kUint8,   kInt32,   kUint32,   kInt64, kUint64,
                                   kFloat16, kFloat32, kFloat64, kBfloat16, kE4m3,  kE5m2};
  return formats[type];
}

// One rank's arguments of one collective.
struct Arguments {
  const char *send = nullptr;
  char *recv = nullptr;
  size_t count = 0;
  int type = 0;
  int op = 0;
  int root = 0;
  double factor = 1;
};

struct Meeting {
  std::vector<Arguments> ranks;
  std::set<int> arrived;
  bool done = false;
};

// What the ranks of one id share.
struct Clique {
  std::mutex mutex;
  std::condition_variable changed;
  int size = 0;
  std::set<int> joined;
  std::map<int, Meeting> meetings;
  std::map<std::pair<int, int>, std::deque<std::vector<char>>> mail;
};

std::shared_ptr<Clique> clique_of(uint64_t id, int size) {
  static std::mutex mutex;
  static std::map<uint64_t, std::shared_ptr<Clique>> all;
  const std::lock_guard lock(mutex);
  auto &one = all[id];
  if (!one) one = std::make_shared<Clique>();
  one->size = size;
  return one;
}

double combined(const Arguments &how, int size, double a, double b, bool last) {
  if (how.op == 1) return a * b;
  if (how.op == 2) return std::max(a, b);
  if (how.op == 3) return std::min(a, b);
  return how.op == 4 && last ? (a + b) / size : a + b;
}

// recv[i] = op over the ranks of element `offset + i`.
void reduce_into(char *recv, const Meeting &meeting, const Arguments &how, size_t offset) {
  const Format format = format_of(how.type);
  const auto size = static_cast<int>(meeting.ranks.size());
  for (size_t i = 0; i < how.count; ++i) {
    double sum = 0;
    for (int r = 0; r < size; ++r) {
      const Arguments &one = meeting.ranks[r];
      const double x = decode(format, one.send + (offset + i) * format.bytes) * one.factor;
      sum = r == 0 ? x : combined(how, size, sum, x, r == size - 1);
    }
    encode(format, sum, recv + i * format.bytes);
  }
}

}  // namespace

struct N(Comm) {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  int size = 0;
  bool blocking = true;
  bool aborted = false;  // under the clique's lock, as what follows
  int state = N(Success);
  int calls = 0;
  std::vector<double> factors;
  std::thread work;
};

namespace {

using Comm = N(Comm);
using Result = N(Result_t);

struct Transfer {
  Comm *comm;
  const char *send;
  char *recv;
  size_t bytes;
  int peer;
};
thread_local int group_depth = 0;
thread_local std::vector<Transfer> group;

bool wait(Comm &comm, std::unique_lock<std::mutex> &lock, const std::function<bool()> &ready) {
  comm.clique->changed.wait(lock, [&] { return ready() || comm.aborted; });
  return ready();
}

// At once, or in the background where the communicator does not block.
Result run(Comm *comm, std::function<Result()> work) {
  if (comm->blocking) return work();
  {
    const std::lock_guard lock(comm->clique->mutex);
    comm->state = N(InProgress);
  }
  if (comm->work.joinable()) comm->work.join();
  comm->work = std::thread([comm, work = std::move(work)] {
    const Result result = work();
    const std::lock_guard lock(comm->clique->mutex);
    comm->state = result;
  });
  return N(InProgress);
}

using Finish = void (*)(Meeting &);

Result meet(Comm *comm, const Arguments &arguments, Finish finish) {
  const int number = comm->calls++;
  return run(comm, [=] {
    Clique &clique = *comm->clique;
    std::unique_lock lock(clique.mutex);
    Meeting &meeting = clique.meetings[number];
    meeting.ranks.resize(comm->size);
    meeting.ranks[comm->rank] = arguments;
    meeting.arrived.insert(comm->rank);
    if (meeting.arrived.size() == static_cast<size_t>(comm->size)) {
      finish(meeting);
      meeting.done = true;
      clique.changed.notify_all();
    }
    if (wait(*comm, lock, [&] { return meeting.done; })) return N(Success);
    meeting.arrived.erase(comm->rank);
    return N(InternalError);
  });
}

Result deliver(Comm *comm, const std::vector<Transfer> &transfers) {
  return run(comm, [=] {
    Clique &clique = *comm->clique;
    std::unique_lock lock(clique.mutex);
    for (const Transfer &one : transfers)
      if (one.send != nullptr)
        clique.mail[{comm->rank, one.peer}].emplace_back(one.send, one.send + one.bytes);
    clique.changed.notify_all();
    for (const Transfer &one : transfers) {
      if (one.recv == nullptr) continue;
      auto &box = clique.mail[{one.peer, comm->rank}];
      if (!wait(*comm, lock, [&] { return !box.empty(); })) return N(InternalError);
      if (box.front().size() != one.bytes) return N(InvalidArgument);
      std::memcpy(one.recv, box.front().data(), one.bytes);
      box.pop_front();
    }
    return N(Success);
  });
}

Result transfer(const Transfer &one) {
  group.push_back(one);
  if (group_depth > 0) return N(Success);
  return deliver(one.comm, std::exchange(group, {}));
}

void join_work(Comm *comm) {
  if (comm->work.joinable()) comm->work.join();
}

double factor_of(const Comm &comm, int op) { return op < N(NumOps) ? 1 : comm.factors[op - N(NumOps)]; }

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
  uint64_t number;
  std::memcpy(&number, id.internal + sizeof id - sizeof number, sizeof number);
  if (id.internal[0] != 0x5a) return N(InvalidArgument);
  auto *comm = new Comm;
  comm->clique = clique_of(number, size);
  comm->rank = rank;
  comm->size = size;
  *out = comm;
  std::unique_lock lock(comm->clique->mutex);
  comm->clique->joined.insert(rank);
  comm->clique->changed.notify_all();
  return wait(*comm, lock, [&] { return static_cast<int>(comm->clique->joined.size()) == size; })
             ? N(Success)
             : N(InternalError);
}

EXPORT Result N(CommDestroy)(Comm *comm) {
  CALLED("CommDestroy", "rank=%d", comm->rank);
  join_work(comm);
  delete comm;
  return N(Success);
}

EXPORT Result N(CommAbort)(Comm *comm) {
  CALLED("CommAbort", "rank=%d", comm->rank);
  {
    const std::lock_guard lock(comm->clique->mutex);
    comm->aborted = true;
    comm->clique->changed.notify_all();
  }
  join_work(comm);
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
  uint64_t number;
  std::memcpy(&number, id.internal + sizeof id - sizeof number, sizeof number);
  if (config->magic != 0xcafebeef || id.internal[0] != 0x5a) return N(InvalidArgument);
  auto *comm = new Comm;
  comm->clique = clique_of(number, size);
  comm->rank = rank;
  comm->size = size;
  comm->blocking = config->blocking != 0;
  *out = comm;
  return run(comm, [=] {
    std::unique_lock lock(comm->clique->mutex);
    comm->clique->joined.insert(rank);
    comm->clique->changed.notify_all();
    return wait(*comm, lock, [&] { return static_cast<int>(comm->clique->joined.size()) == size; })
               ? N(Success)
               : N(InternalError);
  });
}

EXPORT Result N(CommFinalize)(Comm *comm) {
  CALLED("CommFinalize", "rank=%d", comm->rank);
  return meet(comm, {}, [](Meeting &) {});  // all ranks are done
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
  return meet(comm, {static_cast<const char *>(send), static_cast<char *>(recv), count, type, 0, root},
              [](Meeting &meeting) {
                const Arguments from = meeting.ranks[meeting.ranks[0].root];
                for (const Arguments &one : meeting.ranks)
                  std::memmove(one.recv, from.send, one.count * format_of(one.type).bytes);
              });
}

#ifndef DOUBLE_BROKEN
EXPORT Result N(AllReduce)(const void *send, void *recv, size_t count, N(DataType_t) type, N(RedOp_t) op,
                           Comm *comm, cudaStream_t stream) {
  CALLED("AllReduce", "send=%p recv=%p count=%zu type=%d op=%d stream=%p", send, recv, count, type, op,
         static_cast<void *>(stream));
  return meet(
      comm,
      {static_cast<const char *>(send), static_cast<char *>(recv), count, type, op, 0, factor_of(*comm, op)},
      [](Meeting &meeting) {
        const Arguments &how = meeting.ranks[0];
        const size_t bytes = how.count * format_of(how.type).bytes;
        std::vector<char> result(bytes);
        reduce_into(result.data(), meeting, how, 0);
        for (const Arguments &one : meeting.ranks) std::memcpy(one.recv, result.data(), bytes);
      });
}
#endif

EXPORT Result N(Reduce)(const void *send, void *recv, size_t count, N(DataType_t) type, N(RedOp_t) op,
                        int root, Comm *comm, cudaStream_t stream) {
  CALLED("Reduce", "send=%p recv=%p count=%zu type=%d op=%d root=%d stream=%p", send, recv, count, type, op,
         root, static_cast<void *>(stream));
  return meet(comm,
              {static_cast<const char *>(send), static_cast<char *>(recv), count, type, op, root,
               factor_of(*comm, op)},
              [](Meeting &meeting) {
                const Arguments &how = meeting.ranks[meeting.ranks[0].root];
                std::vector<char> result(how.count * format_of(how.type).bytes);
                reduce_into(result.data(), meeting, how, 0);
                std::memcpy(how.recv, result.data(), result.size());
              });
}

EXPORT Result N(AllGather)(const void *send, void *recv, size_t count, N(DataType_t) type, Comm *comm,
                           cudaStream_t stream) {
  CALLED("AllGather", "send=%p recv=%p count=%zu type=%d stream=%p", send, recv, count, type,
         static_cast<void *>(stream));
  return meet(comm, {static_cast<const char *>(send), static_cast<char *>(recv), count, type},
              [](Meeting &meeting) {
                const size_t bytes = meeting.ranks[0].count * format_of(meeting.ranks[0].type).bytes;
                std::vector<char> all;
                for (const Arguments &one : meeting.ranks) all.insert(all.end(), one.send, one.send + bytes);
                for (const Arguments &one : meeting.ranks) std::memcpy(one.recv, all.data(), all.size());
              });
}

EXPORT Result N(ReduceScatter)(const void *send, void *recv, size_t count, N(DataType_t) type, N(RedOp_t) op,
                               Comm *comm, cudaStream_t stream) {
  CALLED("ReduceScatter", "send=%p recv=%p count=%zu type=%d op=%d stream=%p", send, recv, count, type, op,
         static_cast<void *>(stream));
  return meet(
      comm,
      {static_cast<const char *>(send), static_cast<char *>(recv), count, type, op, 0, factor_of(*comm, op)},
      [](Meeting &meeting) {
        const Arguments &how = meeting.ranks[0];
        const size_t bytes = how.count * format_of(how.type).bytes;
        std::vector<char> result(bytes * meeting.ranks.size());
        for (size_t r = 0; r < meeting.ranks.size(); ++r)
          reduce_into(result.data() + r * bytes, meeting, how, r * how.count);
        for (size_t r = 0; r < meeting.ranks.size(); ++r)
          std::memcpy(meeting.ranks[r].recv, result.data() + r * bytes, bytes);
      });
}

EXPORT Result N(Send)(const void *send, size_t count, N(DataType_t) type, int peer, Comm *comm,
                      cudaStream_t stream) {
  CALLED("Send", "send=%p count=%zu type=%d peer=%d stream=%p", send, count, type, peer,
         static_cast<void *>(stream));
  return transfer({comm, static_cast<const char *>(send), nullptr, count * format_of(type).bytes, peer});
}

EXPORT Result N(Recv)(void *recv, size_t count, N(DataType_t) type, int peer, Comm *comm,
                      cudaStream_t stream) {
  CALLED("Recv", "recv=%p count=%zu type=%d peer=%d stream=%p", recv, count, type, peer,
         static_cast<void *>(stream));
  return transfer({comm, nullptr, static_cast<char *>(recv), count * format_of(type).bytes, peer});
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
  Comm *comm = group.front().comm;
  return deliver(comm, std::exchange(group, {}));
}
#endif

}  // extern "C"
