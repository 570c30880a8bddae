// Communicator::serve: a reducer takes part in what the workers start, without knowing it beforehand. The
// first message of a collective, or the word that somebody waits in it, has its fingerprint, and that is all
// a rank without data needs.

#include <algorithm>
#include <new>

#include "base/names.h"
#include "comm/communicator.h"
#include "comm/plan.h"

namespace dicomm {

namespace {

// Completes when the workers have left.
class Serving final : public Request {
 public:
  Serving(Engine &progress, int rank) : Request(DICOMM_SERVE, 0), progress_(progress), rank_(rank) {}
  void fail(const Status &why) override {
    if (done()) return;
    progress_.complete(*this, why.with([&](Failure &f) {
      if (!f.op.empty()) return;  // an operation that failed first; its story is the one to tell
      f.op = opcode_name(opcode);
      f.rank = rank_;
      f.waited_ns = now() - started;
    }));
  }
  std::string waiting_for() const override { return "for what the workers start"; }
  bool needs(int, bool) const override { return false; }

 private:
  Engine &progress_;
  const int rank_;
};

}  // namespace

Status Communicator::start_serving(Request *&out) {
  if (!setup_.topology.ranks[static_cast<size_t>(rank())].helps()) {
    return Status::make(DICOMM_INVALID_ARGUMENT, "serve: rank ", rank(),
                        " is a worker; only ranks whose role is reducer (DICOMM_ROLE) serve");
  }
  if (workers_ == 0)
    return Status::make(DICOMM_INVALID_ARGUMENT,
                        "serve: every rank is a reducer, so there is nobody to serve");
  auto lock = engine_.lock();
  DICOMM_TRY(failed_);
  if (serving_ != nullptr) return Status::make(DICOMM_INVALID_ARGUMENT, "serve: this rank serves already");
  serving_ = out = new Serving(engine_, rank());
  serving_->retain();
  launch(*serving_, kNever);
  serve_soon();
  engine_.settle();
  return {};
}

// Not at once: the message that says so is still being read.
void Communicator::serve_soon() {
  if (serving_ == nullptr || serve_posted_) return;
  serve_posted_ = true;
  engine_.reactor().post([this] {
    serve_posted_ = false;
    try {
      serve();
    } catch (const std::bad_alloc &) {
      fail(Status::make(DICOMM_NO_MEMORY, "serve: memory could not be allocated"));
    }
  });
}

void Communicator::serve() {
  while (serving_ != nullptr) {
    const auto call = called(next_seq_);
    if (!call) break;
    const Status joined = join_call(call->first, call->second);
    if (!joined.ok()) return fail(joined);
  }
  if (serving_ == nullptr || engine_.active_count(this) > 1) return;
  for (int peer = 0; peer < size(); ++peer) {
    if (!setup_.topology.ranks[static_cast<size_t>(peer)].helps() && !channel_->left.contains(peer)) return;
  }
  stop_serving({});
}

void Communicator::stop_serving(const Status &why) {
  if (serving_ == nullptr) return;
  Request *const request = std::exchange(serving_, nullptr);
  request->fail(why);
  request->release();
}

// Who called the collective and what it was; nullopt: nobody that this rank has heard of.
std::optional<std::pair<int, Fingerprint>> Communicator::called(int64_t seq) const {
  std::optional<std::pair<int, Fingerprint>> call;
  channel_->each_unexpected(static_cast<uint32_t>(seq), [&](int source, const Wire &wire) {
    if (!call) call = {source, wire.fingerprint()};
  });
  for (const auto &[source, probe] : ahead_) {
    if (!call && probe.first == seq) call = {source, probe.second};
  }
  return call;
}

// Starts this rank's part in it.
Status Communicator::join_call(int peer, const Fingerprint &theirs) {
  if (theirs.opcode != DICOMM_ALLREDUCE && theirs.opcode != DICOMM_REDUCE &&
      theirs.opcode != DICOMM_BARRIER) {
    return Status(Failure{.code = DICOMM_MISMATCH,
                          .text = concat("collective #", next_seq_, " of communicator '", setup_.name,
                                         "': ", describe_rank(peer), " called ", describe_call(theirs),
                                         ", but ", describe_rank(rank()),
                                         " serves, and takes part in allreduce, reduce and barrier only"),
                          .peer = peer,
                          .seq = next_seq_});
  }
  const dicomm_block block{nullptr, static_cast<int64_t>(theirs.count), nullptr};
  dicomm_op op{};
  op.size = sizeof op;
  op.opcode = theirs.opcode;
  op.dtype = theirs.dtype;
  op.reduce = theirs.reduce;
  op.peer = std::max(theirs.root, 0);
  op.send = &block;
  op.nsend = 1;
  Collective::Plan plan;
  DICOMM_TRY(plan_collective(op, planning(), plan));
  Request *request = nullptr;
  issue(std::move(plan), kNever, request);
  request->notify = [](void *self, int32_t) { static_cast<Communicator *>(self)->serve_soon(); };
  request->notify_arg = this;
  request->release();
  return {};
}

}  // namespace dicomm
