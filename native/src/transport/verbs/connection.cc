#include "transport/verbs/connection.h"

#include <algorithm>

namespace dicomm {

void VerbsCounters::add(const VerbsCounters &other) {
  links += other.links;
  fallbacks += other.fallbacks;
  retries += other.retries;
  direct_bytes += other.direct_bytes;
  staged_bytes += other.staged_bytes;
  socket_bytes += other.socket_bytes;
  chip_bytes += other.chip_bytes;
}

std::string VerbsCounters::members() const {
  return concat(", \"links\": ", links, ", \"fallbacks\": ", fallbacks, ", \"retries\": ", retries,
                ", \"direct_bytes\": ", direct_bytes, ", \"staged_bytes\": ", staged_bytes,
                ", \"socket_bytes\": ", socket_bytes, ", \"chip_bytes\": ", chip_bytes);
}

VerbsConnection::VerbsConnection(StreamShared &shared, VerbsShared &verbs, Owner &owner, UniqueFd fd)
    : MessageConnection(shared, owner), verbs_(verbs), fd_(std::move(fd)), direct_(verbs.settings.direct) {
  ++shared_.counters.connections;
}

Status VerbsConnection::open() {
  DICOMM_TRY(memory_.allocate(verbs_.settings.queue_depth));
  window_ = depth_ = memory_.depth();
  DICOMM_TRY(shared_.reactor.add(fd_.get(), EPOLLIN, this));
  shared_.reactor.add(static_cast<Poller *>(this));
  verbs_.connections.push_back(this);
  if (leads()) retry_ = shared_.reactor.at(now(), [this] { begin_attempt(); });
  return {};
}

void VerbsConnection::close() {
  if (!fd_.valid()) return;
  std::erase(verbs_.connections, this);
  verbs_.closed.add(counters_);
  shared_.reactor.remove(static_cast<Poller *>(this));
  if (!ended_) shared_.reactor.remove(fd_.get());
  shared_.reactor.cancel(retry_);
  shared_.reactor.cancel(attempt_deadline_);
  fd_.reset();
  open_.reset();
  --shared_.counters.connections;
  if (link_) link_->close(completions_);
  link_.reset();
  for (Out &out : outs_) out.lent.give_back(verbs_.staging_out);
  for (In &in : ins_) in.lent.give_back(verbs_.staging_in);
}

void VerbsConnection::after_fork() { fd_.reset(); }

const char *VerbsConnection::path() const {
  if (carrier_ == Carrier::socket) return "tcp";
  return direct_ ? "rdma-direct" : "rdma-staged";
}

bool VerbsConnection::carries(const ChipMemory &) const {
  return chip_direct_ && direct_ && verbs_.chip.way() != ChipReach::Way::none && carrier_ == Carrier::link &&
         usable();
}

void VerbsConnection::want_output() {
  if (!fd_.valid() || ended_ || output_wanted_ == !stream_.idle()) return;
  output_wanted_ = !stream_.idle();
  shared_.reactor.modify(fd_.get(), EPOLLIN | (output_wanted_ ? EPOLLOUT : 0u));
}

void VerbsConnection::on_ready(uint32_t) {
  bool ended = false;
  const Status status = stream_.read(fd_.get(), ended);
  if (!fd_.valid()) return;
  if (status.code() == DICOMM_PROTOCOL) return fail(status);
  poll();  // what came over the queue pairs before the end
  if (!fd_.valid()) return;
  if (ended || !status.ok()) end_of_stream(status);
}

bool VerbsConnection::poll() {
  if (polling_ || !fd_.valid()) return false;
  polling_ = true;  // callbacks may send, which does not come back here
  bool worked = process_completions();
  if (fd_.valid()) worked |= write_queued();
  worked |= !sent_.empty();
  report_sent();
  if (fd_.valid()) acknowledge();
  if (fd_.valid() && !stream_.idle()) {
    stream_.write(fd_.get());  // an error shows when what the peer said last has been read
    want_output();
  }
  report_sent();
  polling_ = false;
  if (fd_.valid() && parted()) {
    close();
    owner_.ended(*this);
  }
  return worked;
}

bool VerbsConnection::arm() {
  if (!fd_.valid()) return false;
  if (!sent_.empty() || lost_.has_value()) return true;
  if (!link_) return false;
  link_->arm();
  link_->poll(completions_);
  return !completions_.empty();
}

void VerbsConnection::say_goodbye() {
  if (goodbye_ != Goodbye::none) return;
  goodbye_ = Goodbye::wanted;
  shared_.reactor.kick();  // from inside dispatch or not, the next poll writes it
}

// The peer has sent its last. Ours goes out first, and is answered, when we are leaving too.
bool VerbsConnection::parted() const {
  if (!peer_goodbye_ || !stream_.idle() || !arrived_.empty()) return false;
  return goodbye_ == Goodbye::none || goodbye_ == Goodbye::answered;
}

void VerbsConnection::end_of_stream(const Status &why) {
  const bool between = stream_.between_records() && incoming_ == nullptr;
  const bool agreed = peer_goodbye_ || goodbye_ == Goodbye::written || goodbye_ == Goodbye::answered;
  if (!between || !agreed) return fail(why.ok() ? no_goodbye() : why);
  if (!arrived_.empty()) {
    if (!ended_) shared_.reactor.remove(fd_.get());
    ended_ = why;
    return;
  }
  close();
  owner_.ended(*this);
}

// The payload's own memory, where there is some that can be registered, else a staging buffer. False: not
// now, or the connection has failed.
bool VerbsConnection::lend(Lent &lent, StagingPool &pool, uint32_t port, const std::byte *data, size_t bytes,
                           int access) {
  if (lent.any()) return true;
  if (direct_ && data != nullptr) {
    const Status status = verbs_.regions.open(port, data, bytes, access, lent.region);
    if (status.ok()) return true;
    if (!verbs_.settings.staged) return fail(status), false;
    log("memory not registered", concat("messages are staged from here on: ", status.sentence()));
    direct_ = false;
  }
  const Status status = pool.take(port, lent.staging);
  if (!status.ok()) fail(status);
  return lent.staging != nullptr;
}

// The chip's own memory. False: the card cannot, and it goes through a bounce.
bool VerbsConnection::lend_chip(Lent &lent, uint32_t port, const std::byte *data, size_t bytes, int access) {
  if (lent.any()) return true;
  if (!chip_direct_ || !direct_) return false;
  const Status status = verbs_.regions.open(port, data, bytes, access, lent.region, &verbs_.chip);
  if (status.ok()) return true;
  log("memory not registered", concat("a chip's goes through the host's from here on: ", status.sentence()));
  chip_direct_ = false;
  return false;
}

// Null: the connection has failed.
ChipMemory::Bounce VerbsConnection::bounce(ChipMemory &chip, size_t bytes) {
  ChipMemory::Bounce made = chip.bounce(bytes);
  if (!made) fail(Status::make(DICOMM_NO_MEMORY, "no ", bytes, " bytes of pinned host memory"));
  return made;
}

}  // namespace dicomm
