#include "comm/communicator.h"

#include <algorithm>

#include "base/names.h"
#include "coll/arena.h"
#include "comm/plan.h"

namespace dicomm {

Communicator::Communicator(Context &context, Setup setup)
    : context_(context),
      engine_(context.engine()),
      messenger_(context.messenger()),
      setup_(std::move(setup)),
      libraries_(setup_.topology),
      workers_(size() - static_cast<int>(std::ranges::count_if(setup_.topology.ranks, &RankInfo::helps))) {}

Communicator::~Communicator() {
  close();
  pair_spares_->close();
}

std::vector<int> Communicator::neighbours() const {
  std::vector<int> ranks;
  if (size() > 1) ranks.push_back((rank() + 1) % size());
  if (size() > 2) ranks.push_back((rank() + size() - 1) % size());
  if (workers_ == size()) return ranks;
  const auto helps = [&](int r) { return setup_.topology.ranks[static_cast<size_t>(r)].helps(); };
  for (int peer = 0; peer < size(); ++peer) {
    if (helps(peer) != helps(rank()) && std::ranges::count(ranks, peer) == 0) ranks.push_back(peer);
  }
  return ranks;
}

Status Communicator::open(Nanos deadline) {
  DICOMM_TRY(Rules::parse(setup_.algorithms, rules_));
  auto lock = engine_.lock();
  if (messenger_.attached(setup_.id)) {
    return Status::make(
        DICOMM_INVALID_ARGUMENT, "communicator '", setup_.name,
        "' has another rank in this context already; a context holds one rank of a communicator");
  }
  channel_ = &messenger_.attach(setup_.id, *this, rank(), setup_.peers);
  context_.add(*this);
  messenger_.replay(*channel_);
  const std::vector<int> near = neighbours();
  Wire hello;
  hello.type = MessageType::hello;
  for (const int peer : near) {
    messenger_.notify(*channel_, peer, hello);
    // Without a path to it nothing will ever say so.
    const Link &link = messenger_.link(*channel_, peer);
    if (link.endpoint == nullptr) on_peer_lost(peer, link.gone);
  }
  engine_.settle();
  const auto met = [&] {
    return std::ranges::all_of(near, [&](int peer) { return hellos_.contains(peer); });
  };
  engine_.drive(lock, deadline, [&] { return !failed_.ok() || met(); });
  if (met()) {
    DICOMM_TRY(join_arena(lock, deadline));
    lock.unlock();
    return join_island(deadline);
  }
  DICOMM_TRY(failed_);
  std::string missing;
  for (const int peer : near) {
    if (!hellos_.contains(peer)) missing += (missing.empty() ? "" : " and ") + describe_rank(peer);
  }
  const Status why = Status::make(DICOMM_TIMED_OUT, "making communicator '", setup_.name,
                                  "' timed out waiting for ", missing, "; did every rank make it?");
  fail(why);
  return why;
}

// The descriptor goes from rank to rank, along connections that are there.
Status Communicator::join_arena(Engine::Lock &lock, Nanos deadline) {
  if (!fits_arena(setup_.topology) || !share_memory(setup_.peers)) return {};
  ArenaOwner &owner = *this;
  auto arena = std::make_unique<Arena>(engine_.reactor(), owner, setup_.id, rank(), size());
  Status status;
  if (rank() == 0) {
    status = arena->create();
  } else {
    engine_.drive(lock, deadline, [&] { return !failed_.ok() || channel_->shared.valid(); });
    // Who has met its neighbours has the communicator. If others went on and it failed, operations say why.
    if (!failed_.ok()) return {};
    status = channel_->shared.valid()
                 ? arena->adopt(std::move(channel_->shared))
                 : Status::make(DICOMM_TIMED_OUT, "making communicator '", setup_.name,
                                "' timed out waiting for shared memory from ", describe_rank(rank() - 1));
  }
  if (status.ok() && rank() + 1 < size()) status = messenger_.share(*channel_, rank() + 1, arena->fd());
  arena->close_fd();
  arena_ = std::move(arena);
  engine_.settle();
  if (!status.ok()) fail(status);
  return status;
}

Status Communicator::start(const dicomm_op &op, Request *&out) {
  Nanos timeout = op.timeout_ns;
  if (timeout == DICOMM_TIMEOUT_DEFAULT) timeout = setup_.timeout;
  if (timeout == DICOMM_TIMEOUT_NEVER) timeout = kNever;
  if (timeout <= 0) {
    return Status::make(DICOMM_INVALID_ARGUMENT, opcode_name(op.opcode), ": time-out of ", timeout,
                        " ns; it must be positive, DICOMM_TIMEOUT_DEFAULT or DICOMM_TIMEOUT_NEVER");
  }
  if (op.opcode == DICOMM_SERVE) return start_serving(out);
  const bool pair = op.opcode == DICOMM_SEND || op.opcode == DICOMM_RECV;
  return pair ? start_point_to_point(op, timeout, out) : start_collective(op, timeout, out);
}

Status Communicator::start_point_to_point(const dicomm_op &op, Nanos timeout, Request *&out) {
  BlockList blocks;
  bool on_chip = false;
  DICOMM_TRY(plan_point_to_point(op, size(), context_.chip(), blocks, on_chip));
  if (on_chip) DICOMM_TRY(context_.chip()->follow(op.stream, nullptr));
  auto lock = engine_.lock();
  DICOMM_TRY(failed_);
  auto *request = PointToPoint::make(
      {engine_, messenger_, *channel_, context_.scratch(), pair_spares_, context_.chip(), on_chip},
      static_cast<dicomm_opcode>(op.opcode), op.peer, op.tag, static_cast<dicomm_dtype>(op.dtype),
      std::move(blocks));
  out = request;
  launch(*request, timeout);
  request->start();
  engine_.settle();
  return {};
}

Planning Communicator::planning() {
  return {setup_.topology, rules_,      libraries_, rank(),           workers_,
          context_.chip(), setup_.wire, programs_,  arena_ != nullptr};
}

Status Communicator::start_collective(const dicomm_op &op, Nanos timeout, Request *&out) {
  Collective::Plan plan;
  DICOMM_TRY(plan_collective(op, planning(), plan));
  const bool on_chip = plan.program->schedule.on_chip;
  if (on_chip) {
    Collective::take_chip_memory(*context_.chip(), plan);
  } else if (op.opcode == DICOMM_BROADCAST && !plan.input.empty()) {
    // The schedules know one buffer; the root's separate input goes there first.
    const Scratch copy = context_.scratch().take(plan.input.bytes());
    plan.input.pack(copy.get());
    plan.output.unpack(copy.get());
    plan.input = {};
  }
  auto lock = engine_.lock();
  DICOMM_TRY(failed_);
  issue(std::move(plan), timeout, out);
  engine_.settle();
  return {};
}

// Lock held.
void Communicator::issue(Collective::Plan plan, Nanos timeout, Request *&out) {
  plan.seq = next_seq_;
  if (plan.wire) {
    plan.residual =
        residuals_.of(plan.input.base(), plan.opcode, plan.program->schedule.scratch(Space::residual));
  }
  const Fingerprint mine = plan.fingerprint;
  auto *request = Collective::make(
      {engine_, messenger_, *channel_, *this, context_.scratch(), context_.chip(), lane_.get(), arena_.get()},
      std::move(plan));
  out = request;
  launch(*request, timeout);
  history_[static_cast<size_t>(next_seq_ % kHistory)] = mine;
  ++next_seq_;
  check_ahead(request->seq, mine);
  if (!request->done()) request->start();
  if (!request->done() && !probing_) {
    probing_ = true;
    probe_timer_ = engine_.reactor().at(now() + kProbeAfter, [this] { probe(); });
  }
}

void Communicator::launch(Request &request, Nanos timeout) {
  request.group = this;
  request.deadline = timeout == kNever ? kNever : deadline_after(timeout);
  engine_.track(request);
}

// Messages that came before this rank called the collective: do they speak of the same one?
void Communicator::check_ahead(int64_t seq, const Fingerprint &mine) {
  std::optional<std::pair<int, Fingerprint>> other;
  channel_->each_unexpected(static_cast<uint32_t>(seq), [&](int source, const Wire &wire) {
    if (!other && wire.fingerprint() != mine) other = {source, wire.fingerprint()};
  });
  for (const auto &[source, probe] : ahead_) {
    if (!other && probe.first == seq && probe.second != mine) other = {source, probe.second};
  }
  if (other) fail(mismatch(other->first, seq, mine, other->second));
}

// Ranks that called different collectives may all wait and send nothing. So whoever waits for long tells
// those it waits for what it called.
void Communicator::probe() {
  probing_ = false;
  if (!failed_.ok()) return;
  if (lane_) {
    const Status noticed = lane_->async_error();
    if (!noticed.ok() && suspicious_) return fail(noticed);
    suspicious_ = !noticed.ok();  // by the next time it may be known by name what it was
  }
  bool again = suspicious_;
  for (Request *request : engine_.active(this)) {
    if (auto *collective = dynamic_cast<Collective *>(request)) {
      again = true;
      for (const int rank : collective->awaited()) {
        if (now() - request->started < kProbeAfter || std::ranges::count(collective->probed, rank) > 0)
          continue;
        collective->probed.push_back(rank);
        Wire wire;
        wire.type = MessageType::probe;
        wire.set(collective->fingerprint());
        wire.seq = static_cast<uint32_t>(request->seq);
        messenger_.notify(*channel_, rank, wire);
      }
    }
    request->release();
  }
  if (!again) return;
  probing_ = true;
  probe_timer_ = engine_.reactor().at(now() + kProbeAfter, [this] { probe(); });
}

int64_t Communicator::full_seq(uint32_t wire) const {
  return next_seq_ + static_cast<int32_t>(wire - static_cast<uint32_t>(next_seq_));
}

Status Communicator::mismatch(int peer, int64_t seq, const Fingerprint &mine,
                              const Fingerprint &theirs) const {
  std::string text =
      concat("collective #", seq, " of communicator '", setup_.name, "' differs between ranks: rank ", rank(),
             " called ", describe_call(mine), ", rank ", peer, " called ", describe_call(theirs));
  if (describe_call(mine) == describe_call(theirs))
    text += " with other counts per rank or another algorithm";
  return Status(Failure{.code = DICOMM_MISMATCH,
                        .text = text + "; all ranks must call the same collectives in the same order",
                        .peer = peer,
                        .seq = seq});
}

bool Communicator::on_fingerprint(int peer, uint32_t wire_seq, const Fingerprint &theirs) {
  if (!failed_.ok()) return tell_end(peer), false;
  const int64_t seq = full_seq(wire_seq);
  if (seq == next_seq_) serve_soon();
  if (seq >= next_seq_ || seq < 0 || next_seq_ - seq > kHistory) return true;
  const Fingerprint &mine = history_[static_cast<size_t>(seq % kHistory)];
  if (mine == theirs) return true;
  fail(mismatch(peer, seq, mine, theirs));
  return false;
}

void Communicator::on_other_call(int peer, int64_t seq, const Fingerprint &mine, const Fingerprint &theirs) {
  fail(mismatch(peer, seq, mine, theirs));
}

void Communicator::wake(int peer) {
  Wire wire;
  wire.type = MessageType::wake;
  messenger_.notify(*channel_, peer, wire);
}

void Communicator::on_probe(int peer, uint32_t wire_seq, const Fingerprint &theirs) {
  const int64_t seq = full_seq(wire_seq);
  if (seq >= next_seq_) {
    ahead_[peer] = {seq, theirs};
    serve_soon();
  } else {
    static_cast<void>(on_fingerprint(peer, wire_seq, theirs));  // fails the communicator by itself
  }
}

void Communicator::on_hello(int peer) {
  hellos_.insert(peer);
  static_cast<void>(messenger_.link(*channel_, peer));  // it will hear that this rank leaves
  if (!failed_.ok()) tell_end(peer);
}

// Once; also to those that were not there yet when it came.
void Communicator::tell_end(int peer) {
  if (!told_.insert(peer).second) return;
  const Farewell told = farewell();
  messenger_.notify(*channel_, peer, told.wire, told.text);
}

void Communicator::on_bye(int peer) {
  channel_->left.insert(peer);
  const Link *link = channel_->links[static_cast<size_t>(peer)];
  const bool gone = link != nullptr && link->endpoint == nullptr;
  const Status why(Failure{.code = DICOMM_PEER_LOST,
                           .text = describe_rank(peer) + " has closed the communicator and takes no part",
                           .peer = peer});
  for (Request *request : engine_.active(this)) {
    if (!request->done() && request->needs(peer, gone)) request->give_up(why);
    request->release();
  }
  serve_soon();
}

void Communicator::on_peer_lost(int peer, const Status &why) {
  if (channel_->left.contains(peer)) {
    on_bye(peer);
    return;
  }
  fail(why.with([&](Failure &f) {
    f.text = concat("lost ", describe_rank(peer), ": ", f.text);
    f.peer = peer;
    f.peer_host = setup_.peers[static_cast<size_t>(peer)].host;
  }));
}

void Communicator::on_remote_failure(int source, dicomm_status code, const std::string &text,
                                     const Wire &wire) {
  // What every rank must know by its own name stays that; the rest is, for this rank, an abort.
  const bool same = code == DICOMM_MISMATCH || code == DICOMM_PEER_LOST || code == DICOMM_CONNECT_FAILED;
  fail(Status(
      Failure{.code = same ? code : DICOMM_ABORTED,
              .text = concat(describe_rank(source), " reports: ", text),
              .peer = wire.root >= 0 && wire.root < size() && wire.root != rank() ? wire.root : source}));
}

// Of a communicator that has failed or was left.
Farewell Communicator::farewell() const {
  Farewell out;
  out.wire.type = MessageType::bye;
  if (left_well_) return out;
  const Failure &why = *failed_.failure();
  out.wire.type = MessageType::fail;
  out.wire.id = static_cast<uint64_t>(why.code);
  out.wire.root = why.peer;
  // A report that is passed on is not wrapped again.
  out.text = why.text.find(" reports: ") != std::string::npos ? why.text : failed_.sentence();
  return out;
}

void Communicator::fail(const Status &why) {
  if (!failed_.ok()) return;
  failed_ = why;
  context_.log(3, concat("communicator '", setup_.name, "' rank ", rank(), " failed: ", why.message()));
  for (int peer = 0; peer < size(); ++peer) {
    const Link *link = channel_->links[static_cast<size_t>(peer)];
    if (peer != rank() && link != nullptr && link->endpoint != nullptr) tell_end(peer);
  }
  end(why);
}

void Communicator::end(const Status &why) {
  if (failed_.ok()) failed_ = why;
  if (lane_) lane_->abort();
  stop_serving(why);
  for (Request *request : engine_.active(this)) {
    if (!request->done()) request->fail(why);
    request->release();
  }
}

void Communicator::leave(const Status &why) {
  const auto active = engine_.active(this);
  for (Request *request : active) request->release();
  left_well_ = active.empty() && failed_.ok();
  if (!active.empty()) fail(why);  // the others must not wait for what this rank has not finished
  if (failed_.ok()) failed_ = why;
  Wire wire;
  wire.type = MessageType::bye;
  for (int peer = 0; peer < size(); ++peer) {
    const Link *link = channel_->links[static_cast<size_t>(peer)];
    if (peer != rank() && link != nullptr && link->endpoint != nullptr)
      messenger_.notify(*channel_, peer, wire);
  }
}

void Communicator::set_timeout(Nanos timeout) {
  auto lock = engine_.lock();
  setup_.timeout = timeout == DICOMM_TIMEOUT_NEVER ? kNever : timeout;
}

void Communicator::abort(const std::string &reason) {
  auto lock = engine_.lock();
  fail(
      Status::make(DICOMM_ABORTED, "aborted by ", describe_rank(rank()), reason.empty() ? "" : ": ", reason));
  engine_.settle();
}

void Communicator::close_lane() {
  if (lane_) lane_->close(left_well_, kLaneGoodbye);
}

void Communicator::close() {
  if (channel_ == nullptr || context_.closed()) return;
  auto lock = engine_.lock();
  stop_serving(Status::make(DICOMM_ABORTED, describe_rank(rank()), " closed the communicator"));
  engine_.drive(lock, setup_.timeout == kNever ? kNever : deadline_after(setup_.timeout), [&] {
    const auto active = engine_.active(this);
    for (Request *request : active) request->release();
    return active.empty();
  });
  leave(Status::make(DICOMM_ABORTED, describe_rank(rank()), " closed the communicator"));
  if (probing_) engine_.reactor().cancel(probe_timer_);
  context_.remove(*this);
  engine_.settle();
  if (lane_) {
    lock.unlock();
    close_lane();
    lock.lock();
    // What the chip had under way has ended, or is given up.
    engine_.drive(lock, deadline_after(kLaneGoodbye), [&] {
      const auto active = engine_.active(this);
      for (Request *request : active) request->release();
      return active.empty();
    });
  }
  arena_.reset();
  messenger_.detach(*channel_, farewell());
  channel_ = nullptr;
  engine_.settle();
}

std::string Communicator::name_of(const ContextId &id) const {
  const auto peer = std::ranges::find(setup_.peers, id, &PeerAddress::id);
  if (peer == setup_.peers.end()) return {};
  const auto rank = static_cast<size_t>(peer - setup_.peers.begin());
  return concat("rank ", rank, " ", setup_.topology.ranks[rank].chip.vendor, "@", peer->host);
}

std::string Communicator::describe_rank(int rank) const {
  return concat("rank ", rank, " (", setup_.peers[static_cast<size_t>(rank)].host, ")");
}

}  // namespace dicomm
