#include "ccl/mpi/group.h"

#include <cstring>

#include "base/names.h"
#include "ccl/bounded.h"

namespace dicomm::mpi {

namespace {

constexpr Nanos kDestructorPatience = kSecond;
// MPI counts in int; longer operations go in pieces of so many elements.
constexpr uint64_t kPiece = 1 << 30;

const std::byte *at(const void *data, uint64_t bytes) { return static_cast<const std::byte *>(data) + bytes; }
std::byte *at(void *data, uint64_t bytes) { return static_cast<std::byte *>(data) + bytes; }

std::shared_ptr<Work> calling(const char *function) {
  auto work = std::make_shared<Work>();
  work->function = function;
  return work;
}

// MPI does not want one buffer for both ways, and algorithms differ with MPI_IN_PLACE: the input is what
// `data` holds when the work begins, kept aside. Returns where.
const std::byte *set_aside(Work &work, const void *data, size_t bytes) {
  work.aside = std::make_unique_for_overwrite<std::byte[]>(bytes);
  work.before = [aside = work.aside.get(), data, bytes] { std::memcpy(aside, data, bytes); };
  return work.aside.get();
}

template <class Piece>
void each_piece(uint64_t count, const Piece &piece) {
  for (uint64_t done = 0; done < count; done += kPiece)
    piece(done, static_cast<int>(std::min(kPiece, count - done)));
}

}  // namespace

Status Group::join(std::shared_ptr<Library> library, const Id &id, int rank, int size, Device &device,
                   int64_t timeout_ns, std::unique_ptr<CclGroup> &out) {
  const Nanos deadline = ccl_deadline(timeout_ns);
  std::vector<int> world_ranks;
  DICOMM_TRY(library->usable());
  Status joined = meet(*library, id, rank, size, deadline, world_ranks);
  auto comm = std::make_shared<Handle>(0);
  const auto make = [library, comm, world_ranks, tag = id.tag]() -> Status {
    const Functions &call = library->call;
    Handle world = 0, group = 0;
    DICOMM_TRY(library->failure(call.Comm_group(library->abi.world, &world), "Comm_group"));
    DICOMM_TRY(library->failure(
        call.Group_incl(world, static_cast<int>(world_ranks.size()), world_ranks.data(), &group),
        "Group_incl"));
    DICOMM_TRY(library->failure(call.Comm_create_group(library->abi.world, group, tag, comm.get()),
                                "Comm_create_group"));
    call.Group_free(&group);
    call.Group_free(&world);
    return library->failure(call.Comm_set_errhandler(*comm, library->abi.errors_return),
                            "Comm_set_errhandler");
  };
  // Nobody waits in there for others but those that are on their way: all have just answered.
  if (joined.ok() && !run_bounded(device, deadline, make, [] {}, joined))
    joined = Status::make(DICOMM_TIMED_OUT, library->describe(), ": MPI_Comm_create_group has not returned");
  if (joined.code() == DICOMM_TIMED_OUT)
    return joined.with([&](Failure &failure) {
      failure.waited_ns = timeout_ns;
      failure.text += concat(": not all of the ", size, " ranks came; this is rank ", rank,
                             ". Is each of them a process, and all in one MPI_COMM_WORLD?");
    });
  DICOMM_TRY(joined);
  out = std::make_unique<Group>(std::move(library), *comm, rank, size, device);
  return {};
}

Group::~Group() { abort(kDestructorPatience); }

Status Group::enqueue(std::shared_ptr<Work> work, Stream &stream) {
  return inside([&]() -> Status {
    DICOMM_TRY(session_->error());
    // Streams of the Device given to join are queues.
    return Session::enqueue(session_, std::move(work), *static_cast<WorkQueue *>(stream.native()));
  });
}

Status Group::reducing(dicomm_dtype dtype, dicomm_reduce op, Handle &their_dtype, Handle &their_op) const {
  const auto found = session_->library->reducing(dtype, op);
  if (!found)
    return Status::make(DICOMM_NOT_SUPPORTED, "MPI does not do ", reduce_name(op), " of ", dtype_name(dtype),
                        " as dicomm does");
  their_dtype = session_->library->abi.dtypes[dtype];
  their_op = *found;
  return {};
}

Status Group::broadcast(const void *send, void *recv, uint64_t count, dicomm_dtype dtype, int root,
                        Stream &stream) {
  DICOMM_TRY(check_collective(root));
  const uint64_t bytes = count * dicomm_dtype_size(dtype);
  auto work = calling("Ibcast");
  if (rank() == root && send != recv && count > 0)
    work->before = [send, recv, bytes] { std::memcpy(recv, send, bytes); };
  const Library &library = *session_->library;
  each_piece(bytes, [&](uint64_t begin, int n) {
    work->calls.push_back(
        [&library, data = at(recv, begin), n, root, comm = session_->comm](Handle *request) {
          return library.call.Ibcast(data, n, library.abi.dtypes[DICOMM_UINT8], root, comm, request);
        });
  });
  return enqueue(std::move(work), stream);
}

Status Group::allreduce(const void *send, void *recv, uint64_t count, dicomm_dtype dtype, dicomm_reduce op,
                        Stream &stream) {
  DICOMM_TRY(check_collective(0));
  Handle theirs = 0, their_op = 0;
  DICOMM_TRY(reducing(dtype, op, theirs, their_op));
  const size_t element = dicomm_dtype_size(dtype);
  auto work = calling("Iallreduce");
  if (send == recv) send = set_aside(*work, recv, count * element);
  each_piece(count, [&](uint64_t begin, int n) {
    work->calls.push_back([&call = session_->library->call, in = at(send, begin * element),
                           out = at(recv, begin * element), n, theirs, their_op,
                           comm = session_->comm](Handle *request) {
      return call.Iallreduce(in, out, n, theirs, their_op, comm, request);
    });
  });
  return enqueue(std::move(work), stream);
}

Status Group::reduce(const void *send, void *recv, uint64_t count, dicomm_dtype dtype, dicomm_reduce op,
                     int root, Stream &stream) {
  DICOMM_TRY(check_collective(root));
  Handle theirs = 0, their_op = 0;
  DICOMM_TRY(reducing(dtype, op, theirs, their_op));
  const size_t element = dicomm_dtype_size(dtype);
  auto work = calling("Ireduce");
  if (rank() != root) recv = nullptr;
  if (send == recv) send = set_aside(*work, recv, count * element);
  each_piece(count, [&](uint64_t begin, int n) {
    work->calls.push_back([&call = session_->library->call, in = at(send, begin * element),
                           out = recv == nullptr ? nullptr : at(recv, begin * element), n, theirs, their_op,
                           root, comm = session_->comm](Handle *request) {
      return call.Ireduce(in, out, n, theirs, their_op, root, comm, request);
    });
  });
  return enqueue(std::move(work), stream);
}

Status Group::allgather(const void *send, void *recv, uint64_t count, dicomm_dtype dtype, Stream &stream) {
  DICOMM_TRY(check_collective(0));
  const uint64_t bytes = count * dicomm_dtype_size(dtype);
  const auto ranks = static_cast<uint64_t>(size());
  std::byte *const own = at(recv, static_cast<uint64_t>(rank()) * bytes);
  auto work = calling("Iallgather");
  const Library &library = *session_->library;
  const Handle byte = library.abi.dtypes[DICOMM_UINT8];
  if (bytes * ranks > kPiece) {  // one block after the other
    if (send != own) work->before = [own, send, bytes] { std::memcpy(own, send, bytes); };
    for (int root = 0; root < size(); ++root)
      each_piece(bytes, [&](uint64_t begin, int n) {
        work->calls.push_back([&library, data = at(recv, static_cast<uint64_t>(root) * bytes + begin), n,
                               root, byte, comm = session_->comm](Handle *request) {
          return library.call.Ibcast(data, n, byte, root, comm, request);
        });
      });
    return enqueue(std::move(work), stream);
  }
  if (send == own && bytes > 0) send = set_aside(*work, own, bytes);
  const int n = static_cast<int>(bytes);
  if (n > 0)
    work->calls.push_back([&library, send, recv, n, byte, comm = session_->comm](Handle *request) {
      return library.call.Iallgather(send, n, byte, recv, n, byte, comm, request);
    });
  return enqueue(std::move(work), stream);
}

Status Group::reduce_scatter(const void *send, void *recv, uint64_t count, dicomm_dtype dtype,
                             dicomm_reduce op, Stream &stream) {
  DICOMM_TRY(check_collective(0));
  Handle theirs = 0, their_op = 0;
  DICOMM_TRY(reducing(dtype, op, theirs, their_op));
  const uint64_t bytes = count * dicomm_dtype_size(dtype);
  const auto ranks = static_cast<uint64_t>(size());
  auto work = calling("Ireduce_scatter_block");
  void *out = recv;
  if (recv == at(send, static_cast<uint64_t>(rank()) * bytes) && count > 0) {
    work->aside = std::make_unique_for_overwrite<std::byte[]>(bytes);
    out = work->aside.get();
    work->after = [out, recv, bytes] { std::memcpy(recv, out, bytes); };
  }
  const Functions &call = session_->library->call;
  const Handle comm = session_->comm;
  if (count * ranks > kPiece) {  // one block after the other
    for (int root = 0; root < size(); ++root)
      each_piece(count, [&](uint64_t begin, int n) {
        const uint64_t offset = begin * dicomm_dtype_size(dtype);
        work->calls.push_back([&call, in = at(send, static_cast<uint64_t>(root) * bytes + offset),
                               into = root == rank() ? at(out, offset) : nullptr, n, theirs, their_op, root,
                               comm](Handle *request) {
          return call.Ireduce(in, into, n, theirs, their_op, root, comm, request);
        });
      });
  } else if (count > 0) {
    const int n = static_cast<int>(count);
    work->calls.push_back([&call, send, out, n, theirs, their_op, comm](Handle *request) {
      return call.Ireduce_scatter_block(send, out, n, theirs, their_op, comm, request);
    });
  }
  return enqueue(std::move(work), stream);
}

void Group::add(const CclTransfer &one, Work &work) const {
  const Library &library = *session_->library;
  each_piece(one.count * dicomm_dtype_size(one.dtype), [&](uint64_t begin, int n) {
    const Handle byte = library.abi.dtypes[DICOMM_UINT8], comm = session_->comm;
    if (one.send != nullptr) {
      work.calls.push_back([&library, data = at(one.send, begin), n, byte, peer = one.peer, comm](Handle *r) {
        return library.call.Isend(data, n, byte, peer, 0, comm, r);
      });
    } else {
      work.calls.push_back([&library, data = at(one.recv, begin), n, byte, peer = one.peer, comm](Handle *r) {
        return library.call.Irecv(data, n, byte, peer, 0, comm, r);
      });
    }
  });
}

Status Group::transfer(const CclTransfer &one) {
  auto work = calling("Isend or MPI_Irecv");
  add(one, *work);
  return enqueue(std::move(work), *one.stream);
}

Status Group::transfer_together(const std::vector<CclTransfer> &all) {
  auto work = calling("Isend or MPI_Irecv");
  for (const CclTransfer &one : all) add(one, *work);
  return on_one_stream(streams_of(all), [&](Stream &stream) { return enqueue(std::move(work), stream); });
}

Status Group::async_error() {
  const Gate::Pass pass(gate_);
  DICOMM_TRY(pass.status());
  return session_->error();
}

// The communicator stays: to give it back MPI wants all ranks.
void Group::abort(int64_t timeout_ns) {
  if (!gate_.end()) return;
  session_->end();
  static_cast<void>(session_->wait_idle(ccl_deadline(timeout_ns)));
}

Status Group::close(int64_t timeout_ns) {
  if (!gate_.end()) return Gate::refusal();
  const Nanos deadline = ccl_deadline(timeout_ns);
  Status status;
  if (!session_->wait_idle(deadline))
    status = Status::make(DICOMM_TIMED_OUT, "work enqueued on the group did not end in time");
  if (status.ok()) status = session_->error();
  if (status.ok()) {  // nobody leaves before all have done their work
    std::vector<Handle> requests(1);
    const Library &library = *session_->library;
    status = library.failure(library.call.Ibarrier(session_->comm, &requests.front()), "Ibarrier");
    if (status.ok()) status = wait_all(library, requests, deadline, [] { return false; });
    if (status.code() == DICOMM_TIMED_OUT) session_->library->left = true;
  }
  const auto free = [library = session_->library, comm = session_->comm]() -> Status {
    Handle last = comm;
    return library->failure(library->call.Comm_free(&last), "Comm_free");
  };
  if (status.ok() && !run_bounded(device_, deadline, free, [] {}, status))
    status =
        Status::make(DICOMM_TIMED_OUT, session_->library->describe(), ": MPI_Comm_free has not returned");
  session_->end();
  return status;
}

}  // namespace dicomm::mpi
