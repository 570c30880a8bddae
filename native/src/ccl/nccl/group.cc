#include "ccl/nccl/group.h"

#include <algorithm>
#include <atomic>

#include "base/names.h"
#include "ccl/bounded.h"

namespace dicomm::nccl {

namespace {

// For those who are inside the vendor's code when a group is aborted: a communicator that does not block lets
// them out at once. One that blocks lets them out when it is aborted, and only then.
constexpr Nanos kGrace = 100 * kMillisecond;
// For what the destructor ends.
constexpr Nanos kDestructorPatience = kSecond;

// Begins to join; in_progress where the library can do that in the background.
int start_joining(const Library &library, Comm &comm, const UniqueId &id, int rank, int size) {
  if (!library.non_blocking()) return library.call.CommInitRank(&comm, size, id, rank);
  Config config{};
  config.size = sizeof config;
  config.magic = kConfigMagic;
  config.version = kNonBlockingFrom;  // what the fields above are of
  config.blocking = 0;
  return library.call.CommInitRankConfig(&comm, size, id, rank, &config);
}

void discard(const Library &library, Comm comm) {
  if (comm == nullptr) return;
  if (library.call.CommAbort != nullptr)
    library.call.CommAbort(comm);
  else
    library.call.CommDestroy(comm);
}

}  // namespace

Status Group::join(std::shared_ptr<const Library> library, const UniqueId &id, int rank, int size,
                   Device &device, int64_t timeout_ns, std::unique_ptr<CclGroup> &out) {
  const Nanos deadline = ccl_deadline(timeout_ns);
  auto comm = std::make_shared<Comm>(nullptr);
  const auto work = [library, comm, id, rank, size, deadline] {
    const int code = start_joining(*library, *comm, id, rank, size);
    Status joined = library->settle(*comm, code, "CommInitRank", deadline, [] { return false; });
    if (!joined.ok()) {
      discard(*library, *comm);
      *comm = nullptr;
    }
    return joined;
  };
  Status joined;
  // settle() gives up at the deadline by itself; the vendor may then need a moment to discard what there is.
  const Nanos patience = deadline > kNever - kSecond ? kNever : deadline + kSecond;
  const bool returned = run_bounded(
      device, library->non_blocking() ? patience : deadline, work,
      [library, comm] { discard(*library, *comm); }, joined);
  if (!returned)
    joined = Status::make(DICOMM_TIMED_OUT, library->describe(), ": ", library->member.prefix,
                          "CommInitRank has not returned; the thread it runs on is left behind");
  if (joined.code() == DICOMM_TIMED_OUT)
    return joined.with([&](Failure &failure) {
      failure.waited_ns = timeout_ns;
      failure.text += concat(": not all of the ", size, " ranks came; this is rank ", rank);
    });
  DICOMM_TRY(joined);
  out = std::make_unique<Group>(std::move(library), *comm, rank, size, device);
  return {};
}

Group::~Group() { abort(kDestructorPatience); }

// Calls the vendor and waits until it says that the call is enqueued.
template <class Call>
Status Group::enter(const char *function, Call &&call) {
  return inside(
      [&] { return library_->settle(comm_, call(), function, kNever, [this] { return gate_.ended(); }); });
}

Status Group::broadcast(const void *send, void *recv, uint64_t count, dicomm_dtype dtype, int root,
                        Stream &stream) {
  DICOMM_TRY(check_collective(root));
  const Wire wire = moving(library_->version, dtype);
  return enter("Broadcast", [&] {
    return library_->call.Broadcast(rank() == root ? send : recv, recv, count * wire.elements, wire.dtype,
                                    root, comm_, stream.native());
  });
}

Status Group::allgather(const void *send, void *recv, uint64_t count, dicomm_dtype dtype, Stream &stream) {
  DICOMM_TRY(check_collective(0));
  const Wire wire = moving(library_->version, dtype);
  return enter("AllGather", [&] {
    return library_->call.AllGather(send, recv, count * wire.elements, wire.dtype, comm_, stream.native());
  });
}

// call(their dtype, their op, elements)
template <class Call>
Status Group::reduction(const char *function, dicomm_dtype dtype, dicomm_reduce op, uint64_t count,
                        Call &&call) {
  auto how = reducing(library_->member, library_->version, dtype, op);
  if (!how || (op == DICOMM_PREMUL_SUM && library_->call.RedOpCreatePreMulSum == nullptr))
    return Status::make(DICOMM_NOT_SUPPORTED, library_->describe(), " does not reduce ", dtype_name(dtype),
                        " by ", reduce_name(op));
  if (op == DICOMM_PREMUL_SUM) {
    if (!factor_ || factor_->dtype != dtype)
      return Status::make(DICOMM_INVALID_ARGUMENT, "premul_sum without set_factor of a ", dtype_name(dtype));
    how->op = factor_->op;
  }
  return enter(function, [&] { return call(how->wire.dtype, how->op, count * how->wire.elements); });
}

Status Group::allreduce(const void *send, void *recv, uint64_t count, dicomm_dtype dtype, dicomm_reduce op,
                        Stream &stream) {
  DICOMM_TRY(check_collective(0));
  return reduction("AllReduce", dtype, op, count, [&](int theirs, int their_op, size_t n) {
    return library_->call.AllReduce(send, recv, n, theirs, their_op, comm_, stream.native());
  });
}

Status Group::reduce(const void *send, void *recv, uint64_t count, dicomm_dtype dtype, dicomm_reduce op,
                     int root, Stream &stream) {
  DICOMM_TRY(check_collective(root));
  return reduction("Reduce", dtype, op, count, [&](int theirs, int their_op, size_t n) {
    return library_->call.Reduce(send, recv, n, theirs, their_op, root, comm_, stream.native());
  });
}

Status Group::reduce_scatter(const void *send, void *recv, uint64_t count, dicomm_dtype dtype,
                             dicomm_reduce op, Stream &stream) {
  DICOMM_TRY(check_collective(0));
  return reduction("ReduceScatter", dtype, op, count, [&](int theirs, int their_op, size_t n) {
    return library_->call.ReduceScatter(send, recv, n, theirs, their_op, comm_, stream.native());
  });
}

Status Group::set_factor(const void *element, dicomm_dtype dtype) {
  const auto how = reducing(library_->member, library_->version, dtype, DICOMM_PREMUL_SUM);
  if (!how || library_->call.RedOpCreatePreMulSum == nullptr || library_->call.RedOpDestroy == nullptr)
    return Status::make(DICOMM_NOT_SUPPORTED, library_->describe(), " has no premul_sum of ",
                        dtype_name(dtype));
  if (factor_) {
    const int before = factor_->op;
    factor_.reset();
    DICOMM_TRY(enter("RedOpDestroy", [&] { return library_->call.RedOpDestroy(before, comm_); }));
  }
  // Read before the call returns, as it is said to be in host memory; the vendor does not write to it.
  void *const scalar = const_cast<void *>(element);
  int op = 0;
  DICOMM_TRY(enter("RedOpCreatePreMulSum", [&] {
    return library_->call.RedOpCreatePreMulSum(&op, scalar, how->wire.dtype, kScalarInHostMemory, comm_);
  }));
  factor_ = Factor{dtype, op};
  return {};
}

bool Group::transfers() const { return library_->call.Send != nullptr && library_->call.Recv != nullptr; }

int Group::issue(const CclTransfer &one) const {
  const Wire wire = moving(library_->version, one.dtype);
  const size_t count = one.count * wire.elements;
  if (one.send != nullptr)
    return library_->call.Send(one.send, count, wire.dtype, one.peer, comm_, one.stream->native());
  return library_->call.Recv(one.recv, count, wire.dtype, one.peer, comm_, one.stream->native());
}

Status Group::transfer(const CclTransfer &one) {
  return enter(one.send != nullptr ? "Send" : "Recv", [&] { return issue(one); });
}

Status Group::transfer_together(const std::vector<CclTransfer> &all) {
  return enter("GroupEnd", [&]() -> int {
    int code = library_->call.GroupStart();
    if (code != success) return code;
    for (const CclTransfer &one : all) {
      code = issue(one);
      if (code != success && code != in_progress) break;
    }
    const int ended = library_->call.GroupEnd();
    return code != success && code != in_progress ? code : ended;
  });
}

Status Group::async_error() {
  if (library_->call.CommGetAsyncError == nullptr) return {};
  const Gate::Pass pass(gate_);
  DICOMM_TRY(pass.status());
  int code = success;
  if (const int asking = library_->call.CommGetAsyncError(comm_, &code); asking != success) code = asking;
  return code == in_progress ? Status() : library_->failure(code, "CommGetAsyncError");
}

// The communicator is aborted even when somebody is still inside after the grace, for nothing else lets them
// out; without CommAbort it is destroyed, which only works when they are gone.
void Group::release(Nanos deadline) {
  const bool empty = gate_.wait_empty(std::min(deadline, deadline_after(kGrace)));
  if (!empty && library_->call.CommAbort == nullptr) return;
  const auto work = [library = library_, comm = comm_] {
    discard(*library, comm);
    return Status();
  };
  Status ignored;
  run_bounded(device_, deadline, work, [] {}, ignored);
  gate_.wait_empty(deadline);
}

void Group::abort(int64_t timeout_ns) {
  if (gate_.end()) release(ccl_deadline(timeout_ns));
}

Status Group::close(int64_t timeout_ns) {
  if (!gate_.end()) return Gate::refusal();
  const Nanos deadline = ccl_deadline(timeout_ns);
  const auto work = [library = library_, comm = comm_, deadline, factor = factor_] {
    if (factor) library->call.RedOpDestroy(factor->op, comm);
    if (library->call.CommFinalize != nullptr && library->non_blocking()) {
      const int code = library->call.CommFinalize(comm);
      const Status finalized = library->settle(comm, code, "CommFinalize", deadline, [] { return false; });
      if (!finalized.ok()) {
        discard(*library, comm);
        return finalized;
      }
    }
    return library->failure(library->call.CommDestroy(comm), "CommDestroy");
  };
  Status closed;
  const Nanos patience = deadline > kNever - kSecond ? kNever : deadline + kSecond;
  if (run_bounded(device_, library_->non_blocking() ? patience : deadline, work, [] {}, closed))
    return closed;
  return Status::make(DICOMM_TIMED_OUT, library_->describe(),
                      ": enqueued work is not done; the communicator is left to the process's end");
}

}  // namespace dicomm::nccl
