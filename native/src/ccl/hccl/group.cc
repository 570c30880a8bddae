#include "ccl/hccl/group.h"

#include <algorithm>

#include "base/names.h"
#include "ccl/bounded.h"

namespace dicomm::hccl {

namespace {

constexpr Nanos kDestructorPatience = kSecond;

// The vendor takes pointers to non-const for what it only reads.
void *input(const void *data) { return const_cast<void *>(data); }

}  // namespace

// HCCL has no way to join in the background, nor to stop it: the thread is left inside for as long as HCCL's
// own time-out (HCCL_CONNECT_TIMEOUT, 120 s unless set) says.
Status Group::join(std::shared_ptr<const Library> library, const RootInfo &id, int rank, int size,
                   Device &device, int64_t timeout_ns, std::unique_ptr<CclGroup> &out) {
  auto comm = std::make_shared<Comm>(nullptr);
  auto info = std::make_shared<const RootInfo>(id);
  const auto work = [library, comm, info, rank, size] {
    const int code = library->call.CommInitRootInfo(size, info.get(), rank, comm.get());
    return library->failure(code, "CommInitRootInfo");
  };
  const auto late = [library, comm] {
    if (*comm != nullptr) library->call.CommDestroy(*comm);
  };
  Status joined;
  if (!run_bounded(device, ccl_deadline(timeout_ns), work, late, joined))
    joined = Status::make(DICOMM_TIMED_OUT, library->describe(),
                          ": HcclCommInitRootInfo has not returned; the thread it runs on is left behind");
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

template <class Call>
Status Group::enter(const char *function, Call &&call) {
  return inside([&] { return library_->failure(call(), function); });
}

// It has one buffer only.
Status Group::broadcast(const void *send, void *recv, uint64_t count, dicomm_dtype dtype, int root,
                        Stream &stream) {
  DICOMM_TRY(check_collective(root));
  if (count == 0) return gate_.ended() ? Gate::refusal() : Status();
  if (rank() == root && send != recv)
    DICOMM_TRY(stream.copy_on_device(recv, send, count * dicomm_dtype_size(dtype)));
  const Wire wire = moving(dtype);
  return enter("Broadcast", [&] {
    return library_->call.Broadcast(recv, count * wire.elements, wire.dtype, root, comm_, stream.native());
  });
}

Status Group::allgather(const void *send, void *recv, uint64_t count, dicomm_dtype dtype, Stream &stream) {
  DICOMM_TRY(check_collective(0));
  if (count == 0) return gate_.ended() ? Gate::refusal() : Status();
  const Wire wire = moving(dtype);
  return enter("AllGather", [&] {
    return library_->call.AllGather(input(send), recv, count * wire.elements, wire.dtype, comm_,
                                    stream.native());
  });
}

// call(their dtype, their op, elements)
template <class Call>
Status Group::reduction(const char *function, dicomm_dtype dtype, dicomm_reduce op, uint64_t count,
                        Call &&call) {
  const auto how = reducing(dtype, op);
  if (!how)
    return Status::make(DICOMM_NOT_SUPPORTED, library_->describe(), " does not reduce ", dtype_name(dtype),
                        " by ", reduce_name(op));
  if (count == 0) return gate_.ended() ? Gate::refusal() : Status();
  return enter(function, [&] { return call(how->wire.dtype, how->op, count * how->wire.elements); });
}

Status Group::allreduce(const void *send, void *recv, uint64_t count, dicomm_dtype dtype, dicomm_reduce op,
                        Stream &stream) {
  DICOMM_TRY(check_collective(0));
  return reduction("AllReduce", dtype, op, count, [&](int theirs, int their_op, uint64_t n) {
    return library_->call.AllReduce(input(send), recv, n, theirs, their_op, comm_, stream.native());
  });
}

// It wants a receive buffer on every rank.
Status Group::reduce(const void *send, void *recv, uint64_t count, dicomm_dtype dtype, dicomm_reduce op,
                     int root, Stream &stream) {
  DICOMM_TRY(check_collective(root));
  void *into = recv;
  if (rank() != root) DICOMM_TRY(scratch(count * dicomm_dtype_size(dtype), into));
  return reduction("Reduce", dtype, op, count, [&](int theirs, int their_op, uint64_t n) {
    return library_->call.Reduce(input(send), into, n, theirs, their_op, root, comm_, stream.native());
  });
}

Status Group::reduce_scatter(const void *send, void *recv, uint64_t count, dicomm_dtype dtype,
                             dicomm_reduce op, Stream &stream) {
  DICOMM_TRY(check_collective(0));
  return reduction("ReduceScatter", dtype, op, count, [&](int theirs, int their_op, uint64_t n) {
    return library_->call.ReduceScatter(input(send), recv, n, theirs, their_op, comm_, stream.native());
  });
}

// Nobody reads it, so that all operations can share it.
Status Group::scratch(size_t bytes, void *&out) {
  if (scratch_.empty() || scratch_.back()->size() < bytes) {
    std::unique_ptr<Allocation> larger;
    DICOMM_TRY(
        device_.allocate(scratch_.empty() ? bytes : std::max(bytes, 2 * scratch_.back()->size()), larger));
    scratch_.push_back(std::move(larger));
  }
  out = scratch_.back()->data();
  return {};
}

Status Group::transfer(const CclTransfer &one) {
  const Wire wire = moving(one.dtype);
  const uint64_t count = one.count * wire.elements;
  const Functions &call = library_->call;
  if (one.send != nullptr)
    return enter("Send", [&] {
      return call.Send(input(one.send), count, wire.dtype, one.peer, comm_, one.stream->native());
    });
  return enter("Recv",
               [&] { return call.Recv(one.recv, count, wire.dtype, one.peer, comm_, one.stream->native()); });
}

Status Group::transfer_together(const std::vector<CclTransfer> &all) {
  std::vector<SendRecvItem> items;
  for (const CclTransfer &one : all) {
    const Wire wire = moving(one.dtype);
    items.push_back({one.send != nullptr ? kSend : kReceive, one.send != nullptr ? input(one.send) : one.recv,
                     one.count * wire.elements, wire.dtype, static_cast<uint32_t>(one.peer)});
  }
  return on_one_stream(streams_of(all), [&](Stream &stream) {
    return enter("BatchSendRecv", [&] {
      return library_->call.BatchSendRecv(items.data(), static_cast<uint32_t>(items.size()), comm_,
                                          stream.native());
    });
  });
}

Status Group::async_error() {
  const Gate::Pass pass(gate_);
  DICOMM_TRY(pass.status());
  if (library_->call.GetCommAsyncError == nullptr) return {};
  int code = success;
  if (const int asking = library_->call.GetCommAsyncError(comm_, &code); asking != success) code = asking;
  return library_->failure(code, "GetCommAsyncError");
}

Status Group::destroy(Nanos deadline) {
  const auto work = [library = library_, comm = comm_] {
    return library->failure(library->call.CommDestroy(comm), "CommDestroy");
  };
  Status destroyed;
  if (run_bounded(device_, deadline, work, [] {}, destroyed)) return destroyed;
  return Status::make(DICOMM_TIMED_OUT, library_->describe(),
                      ": HcclCommDestroy has not returned; the communicator is left to the process's end");
}

// HCCL frees nobody who waits inside it. While somebody is there the communicator cannot be destroyed: it is
// left to the process's end. Nor can the memory be given back that enqueued work may write to.
void Group::abort(int64_t timeout_ns) {
  if (!gate_.end()) return;
  const Nanos deadline = ccl_deadline(timeout_ns);
  const bool destroyed = gate_.wait_empty(deadline) && destroy(deadline).ok();
  if (!destroyed)
    for (auto &memory : scratch_) (void)memory.release();
}

Status Group::close(int64_t timeout_ns) {
  if (!gate_.end()) return Gate::refusal();
  const Status destroyed = destroy(ccl_deadline(timeout_ns));
  if (!destroyed.ok())
    for (auto &memory : scratch_) (void)memory.release();
  return destroyed;
}

}  // namespace dicomm::hccl
