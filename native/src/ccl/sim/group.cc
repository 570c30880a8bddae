#include "ccl/sim/group.h"

#include <algorithm>
#include <cstring>

#include "base/names.h"
#include "base/operations.h"
#include "ccl/group_base.h"
#include "device/processor/queue.h"

namespace dicomm {

namespace {

constexpr int64_t kDestructorTimeout = kSecond;

dicomm_block block(const void *data, uint64_t count) {
  return {const_cast<void *>(data), static_cast<int64_t>(count), nullptr};
}

// Counts a piece of work from when it is enqueued until it was done, or was thrown away with its stream.
class Counted {
 public:
  explicit Counted(std::shared_ptr<SimCclSession> session) : session_(std::move(session)) {
    session_->work_begins();
  }
  ~Counted() { session_->work_ended(); }
  Counted(const Counted &) = delete;
  SimCclSession &session() const { return *session_; }

 private:
  std::shared_ptr<SimCclSession> session_;
};

// Starts all operations, then waits for each.
Status perform(SimCclSession &session, std::vector<SimCclCall> &calls) {
  std::vector<dicomm_request *> requests;
  Status status;
  for (SimCclCall &call : calls) {
    if (call.copy_from != nullptr && call.recv.count > 0)
      std::memmove(call.recv.data, call.copy_from,
                   static_cast<size_t>(call.recv.count) * dicomm_dtype_size(call.op.dtype));
    call.op.send = call.op.nsend > 0 ? &call.send : nullptr;
    call.op.recv = call.op.nrecv > 0 ? &call.recv : nullptr;
    dicomm_request *request = nullptr;
    if (dicomm_start(session.comm, &call.op, &request) != DICOMM_OK) {
      status = session.last_error();
      session.fail(status);  // what was started would wait for ever
      break;
    }
    requests.push_back(request);
  }
  for (dicomm_request *request : requests) {
    dicomm_status end = DICOMM_INTERRUPTED;
    while (end == DICOMM_INTERRUPTED) end = dicomm_request_wait(request, DICOMM_TIMEOUT_NEVER);
    if (end != DICOMM_OK && status.ok()) status = session.request_error(request);
    dicomm_request_free(request);
  }
  return status;
}

}  // namespace

SimCclGroup::~SimCclGroup() { abort(kDestructorTimeout); }

SimCclGroup::Call SimCclGroup::call(dicomm_opcode opcode, dicomm_dtype dtype, const void *send,
                                    uint64_t send_count, void *recv, uint64_t recv_count,
                                    Stream &stream) const {
  Call made;
  made.op.size = sizeof made.op;
  made.op.opcode = opcode;
  made.op.dtype = dtype;
  made.op.timeout_ns = DICOMM_TIMEOUT_NEVER;
  made.send = block(send, send_count);
  made.recv = block(recv, recv_count);
  made.op.nsend = opcode != DICOMM_BROADCAST && opcode != DICOMM_RECV;
  made.op.nrecv = opcode != DICOMM_SEND;
  made.crossing =
      static_cast<double>(std::max(send_count, recv_count)) * static_cast<double>(dicomm_dtype_size(dtype));
  made.stream = &stream;
  return made;
}

Status SimCclGroup::check(const Call &call) const {
  const auto dtype = static_cast<dicomm_dtype>(call.op.dtype);
  const auto reduce = static_cast<dicomm_reduce>(call.op.reduce);
  DICOMM_TRY(session_->error());
  if (is_reduction(call.op.opcode) && !capabilities_.reduces(dtype, reduce))
    return Status::make(DICOMM_NOT_SUPPORTED, "the library does not know ", reduce_name(reduce), " of ",
                        dtype_name(dtype));
  if (!capabilities_.moves(dtype))
    return Status::make(DICOMM_NOT_SUPPORTED, "the library does not know ", dtype_name(dtype));
  if ((call.op.opcode == DICOMM_SEND || call.op.opcode == DICOMM_RECV) && !capabilities_.send_recv)
    return Status::make(DICOMM_NOT_SUPPORTED, "the library has no ", opcode_name(call.op.opcode));
  if (call.op.peer < 0 || call.op.peer >= size())
    return Status::make(DICOMM_INVALID_ARGUMENT, "rank ", call.op.peer, " is not in a group of ", size());
  return {};
}

Status SimCclGroup::add(const Call &call) {
  DICOMM_TRY(check(call));
  if (depth_ == 0) return enqueue({call});
  collected_.push_back(call);
  return {};
}

Status SimCclGroup::enqueue(std::vector<Call> calls) {
  if (calls.empty()) return {};
  double crossing = 0;
  for (const Call &call : calls) crossing += call.crossing;
  const Nanos on_link = link_gbs_ > 0 ? static_cast<Nanos>(crossing / link_gbs_) : 0;
  return on_one_stream(streams_of(calls), [&](Stream &stream) {
    // A stream of the Device given to join is a simulated one.
    auto *queue = static_cast<WorkQueue *>(stream.native());
    return queue->enqueue([counted = std::make_shared<Counted>(session_), calls = std::move(calls), on_link](
                              Nanos begun, Nanos &until) mutable -> Status {
      if (counted->session().error().ok()) {
        const Status status = perform(counted->session(), calls);
        if (!status.ok()) counted->session().fail(status);
      }
      until = begun + on_link;
      return {};  // the group has failed, not the chip
    });
  });
}

Status SimCclGroup::broadcast(const void *send, void *recv, uint64_t count, dicomm_dtype dtype, int root,
                              Stream &stream) {
  Call made = call(DICOMM_BROADCAST, dtype, nullptr, 0, recv, count, stream);
  made.op.peer = root;
  if (root == rank() && send != recv) made.copy_from = send;
  return add(made);
}

Status SimCclGroup::allreduce(const void *send, void *recv, uint64_t count, dicomm_dtype dtype,
                              dicomm_reduce op, Stream &stream) {
  Call made = call(DICOMM_ALLREDUCE, dtype, send, count, recv, count, stream);
  made.op.reduce = op;
  made.crossing *= 2 * others();
  return add(made);
}

Status SimCclGroup::reduce(const void *send, void *recv, uint64_t count, dicomm_dtype dtype, dicomm_reduce op,
                           int root, Stream &stream) {
  Call made = call(DICOMM_REDUCE, dtype, send, count, recv, count, stream);
  made.op.nrecv = root == rank();
  made.op.reduce = op;
  made.op.peer = root;
  return add(made);
}

Status SimCclGroup::allgather(const void *send, void *recv, uint64_t count, dicomm_dtype dtype,
                              Stream &stream) {
  const auto total = count * static_cast<uint64_t>(size());
  Call made = call(DICOMM_ALLGATHER, dtype, send, count, recv, total, stream);
  made.crossing *= others();
  return add(made);
}

Status SimCclGroup::reduce_scatter(const void *send, void *recv, uint64_t count, dicomm_dtype dtype,
                                   dicomm_reduce op, Stream &stream) {
  const auto total = count * static_cast<uint64_t>(size());
  Call made = call(DICOMM_REDUCE_SCATTER, dtype, send, total, recv, count, stream);
  made.op.reduce = op;
  made.crossing *= others();
  return add(made);
}

Status SimCclGroup::send(const void *data, uint64_t count, dicomm_dtype dtype, int peer, Stream &stream) {
  Call made = call(DICOMM_SEND, dtype, data, count, nullptr, 0, stream);
  made.op.peer = peer;
  return add(made);
}

Status SimCclGroup::recv(void *data, uint64_t count, dicomm_dtype dtype, int peer, Stream &stream) {
  Call made = call(DICOMM_RECV, dtype, nullptr, 0, data, count, stream);
  made.op.peer = peer;
  return add(made);
}

Status SimCclGroup::begin() {
  DICOMM_TRY(session_->error());
  ++depth_;
  return {};
}

Status SimCclGroup::end() {
  if (depth_ == 0) return Status::make(DICOMM_INVALID_ARGUMENT, "end without begin");
  if (--depth_ > 0) return {};
  std::vector<Call> calls;
  calls.swap(collected_);
  DICOMM_TRY(session_->error());
  return enqueue(std::move(calls));
}

void SimCclGroup::abort(int64_t timeout_ns) {
  if (ended_.exchange(true)) return;
  session_->fail(Status::make(DICOMM_ABORTED, "rank ", rank(), " of the group aborted it"));
  session_->drain(timeout_ns == DICOMM_TIMEOUT_NEVER ? kNever : deadline_after(timeout_ns));
}

Status SimCclGroup::close(int64_t timeout_ns) {
  const Nanos deadline = timeout_ns == DICOMM_TIMEOUT_NEVER ? kNever : deadline_after(timeout_ns);
  Status status;
  if (!session_->drain(deadline))
    status = Status::make(DICOMM_TIMED_OUT, "work enqueued on the group did not end in time");
  if (status.ok()) status = session_->error();
  if (status.ok()) status = session_->barrier(deadline);  // nobody leaves before all have done their work
  if (!status.ok()) {
    abort(kDestructorTimeout);
    return status;
  }
  ended_ = true;
  return {};
}

}  // namespace dicomm
