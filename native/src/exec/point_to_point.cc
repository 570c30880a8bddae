#include "exec/point_to_point.h"

#include <cstring>

#include "base/names.h"

namespace dicomm {

PointToPoint *PointToPoint::make(const Place &place, dicomm_opcode opcode, int peer, uint64_t tag,
                                 dicomm_dtype dtype, BlockList blocks) {
  PointToPoint *made = place.spares->take();
  if (made == nullptr) made = new PointToPoint(place);
  made->renew(opcode, blocks.bytes());
  try {
    made->prepare(place, peer, tag, dtype, std::move(blocks));
  } catch (...) {
    delete made;
    throw;
  }
  return made;
}

void PointToPoint::dispose() {
  const auto spares = std::move(spares_);
  spares->give(this);
}

void PointToPoint::prepare(const Place &place, int peer, uint64_t tag, dicomm_dtype dtype, BlockList blocks) {
  spares_ = place.spares;
  blocks_ = std::move(blocks);
  chip_ = place.chip;
  on_chip_ = place.on_chip;
  tasks_.clear();
  copying_ = 0;
  starting_ = by_card_ = matched_ = false;
  carried_ = 0;
  ending_.reset();
  std::byte *data = blocks_.base();
  if (copied()) {
    data = nullptr;  // until it is known whether it is needed
  } else if (!blocks_.contiguous()) {
    packed_ = (on_chip_ ? chip_->pinned() : place.memory).take(bytes);  // on a chip: only of unified memory
    data = packed_.get();
    blocks_.pack(data);  // also before a receive: a shorter message leaves the rest as it was
  }
  Fingerprint fingerprint;
  fingerprint.opcode = DICOMM_SEND;
  fingerprint.dtype = static_cast<uint8_t>(dtype);
  const MatchKey key{false, 0, tag};
  send_ = {};
  receive_.renew();
  if (sending()) {
    send_.owner = this;
    send_.peer = peer;
    send_.key = key;
    send_.fingerprint = fingerprint;
    send_.data = data;
    send_.bytes = bytes;
  } else {
    receive_.owner = this;
    receive_.peer = peer;
    receive_.key = key;
    receive_.fingerprint = fingerprint;
    receive_.data = data;
    receive_.capacity = bytes;
    receive_.tells_parts = copied();
  }
}

void PointToPoint::start() {
  if (sending()) return chip_ != nullptr && (on_chip_ || chip_->sends_under_way > 0) ? fetch() : send();
  if (copied()) receive_on_chip();
  if (const std::optional<Status> end_now = messenger_.receive(channel_, receive_)) end(*end_now);
}

// The bytes from the chip. A long message is offered at once, if that lets it overtake none, and leaves as
// they come; others wait for their bytes, and what leaves from the chip for the work that makes it.
void PointToPoint::fetch() {
  const bool direct = copied() && messenger_.carries(channel_, send_.peer, *chip_, bytes);
  const bool copies = copied() && bytes > 0 && !direct;
  const bool early = copies && in_parts() && chip_->sends_under_way == 0;
  if (direct) {
    send_.chip = chip_;
    send_.data = blocks_.base();
  } else if (copies) {
    send_.data = pinned(bytes);
    if (send_.data == nullptr)
      return fail(Status::make(DICOMM_NO_MEMORY, "no host memory for a message of ", bytes, " bytes"));
  }
  const uint64_t part = early ? kPart : std::max<uint64_t>(bytes, 1);
  Status status;
  for (uint64_t at = 0; at < std::max<uint64_t>(bytes, 1) && status.ok(); at += part) {
    ChipTask &next = task(copies ? Kind::copy : Kind::start);
    next.bytes = std::min(part, bytes - at);
    status = copies ? chip_->to_host(next, packed_.get() + at, blocks_.base() + at, next.bytes)
                    : chip_->after_copies(next);
    copying_ += copies && status.ok();
    starting_ = !copies && status.ok();
  }
  if (!status.ok()) return fail(status);
  if (!early) {
    ++chip_->sends_under_way;
    return;
  }
  send_.available = 0;
  if (const std::optional<Status> end_now = messenger_.send(channel_, send_)) fail(*end_now);
}

ChipTask &PointToPoint::task(Kind kind) {
  ChipTask &made = tasks_.emplace_back();
  made.owner = this;
  made.index = static_cast<uint32_t>(kind);
  return made;
}

// Null: there is none.
std::byte *PointToPoint::pinned(uint64_t size) {
  try {
    chip_->pinned().provide(packed_, size);
  } catch (const std::bad_alloc &) {
    return nullptr;
  }
  return packed_.get();
}

void PointToPoint::on_matched(RecvTask &task) {
  carried_ = 0;
  if (!copied()) return;
  task.data = nullptr;
  // Copies of a message that was withdrawn may be under way: copies alone come after those.
  if (std::exchange(matched_, true)) {
    task.on_chip = nullptr;
    task.chip = nullptr;
  }
}

std::byte *PointToPoint::host_memory(RecvTask &task) { return pinned(task.bytes); }

void PointToPoint::on_chip_done(ChipTask &task, const Status &status) {
  const auto kind = static_cast<Kind>(task.index);
  if (kind == Kind::start) return on_start(status);
  --copying_;
  const bool early = send_.available != UINT64_MAX;
  if (sending() && !early && kind == Kind::copy) --chip_->sends_under_way;
  if (ending_) {
    if (copying_ > 0) return;
    complete(*ending_);
    release();
  } else if (!status.ok()) {
    fail(status);
  } else if (sending() && early) {
    send_.available += task.bytes;
    messenger_.resume(send_);
  } else if (sending()) {
    send();
  } else if (copying_ == 0 && receive_.state == RecvTask::State::done) {
    complete(describe({}));
  }
}

void PointToPoint::on_start(const Status &status) {
  starting_ = false;
  if (sending()) --chip_->sends_under_way;
  if (done()) {
    release();
  } else if (ending_) {
    return;
  } else if (!status.ok()) {
    fail(status);
  } else if (sending()) {
    send();
  } else if (receive_.on_chip != nullptr && receive_.state != RecvTask::State::done) {
    receive_.chip = chip_;
    by_card_ = true;
  }
}

void PointToPoint::send() {
  if (const std::optional<Status> end_now = messenger_.send(channel_, send_)) end(*end_now);
}

void PointToPoint::carry(uint64_t offset, uint64_t size) {
  const Status status =
      chip_->to_chip(task(Kind::copy), blocks_.base() + offset, packed_.get() + offset, size);
  copying_ += status.ok();
  carried_ += size;
  if (!status.ok()) fail(status);
}

void PointToPoint::on_part(RecvTask &, uint64_t offset, uint64_t size, bool on_chip) {
  if (on_chip)
    carried_ += size;
  else
    carry(offset, size);
}

// A card may write to it once the work before the receive has been done; what comes earlier is carried.
void PointToPoint::receive_on_chip() {
  if (receive_.peer < 0 || !messenger_.carries(channel_, receive_.peer, *chip_, bytes)) return;
  receive_.on_chip = blocks_.base();
  starting_ = chip_->after_copies_to_chip(task(Kind::start)).ok();
}

void PointToPoint::on_sent(SendTask &, const Status &status) { end(status); }
void PointToPoint::on_received(RecvTask &, const Status &status) { end(status); }

void PointToPoint::end(const Status &status) {
  if (done()) return;
  if (!status.ok() && (copying_ > 0 || chip_may_be_used())) return fail(status);
  const Status told = describe(status);
  if (!sending()) {
    source = receive_.source;
    if (status.ok()) {
      bytes = receive_.bytes;
      if (copied()) {
        if (carried_ == 0 && bytes > 0) carry(0, bytes);
        if (copying_ > 0 || done()) return;
      }
      if (packed_ && !copied()) blocks_.unpack(packed_.get());
    }
  }
  complete(told);
}

void PointToPoint::complete(const Status &status) {
  packed_ = {};
  if (starting_) retain();  // until that is over
  const bool written = status.ok() && by_card_;
  engine_.complete(*this, written ? describe(chip_->device().see_card_writes()) : status);
}

void PointToPoint::fail(const Status &why) {
  if (done() || ending_) return;
  const Status told = describe(why);
  const bool begun = chip_may_be_used();
  messenger_.cancel(channel_, send_);
  messenger_.cancel(channel_, receive_);
  if (begun)
    copying_ += (sending() ? chip_->after_copies(task(Kind::finish))
                           : chip_->after_copies_to_chip(task(Kind::finish)))
                    .ok();
  if (copying_ == 0) return complete(told);
  ending_ = told;  // the chip still reads or writes the memory
  deadline = kNever;
  retain();
}

// Has the endpoint begun copies from or to the chip, perhaps?
bool PointToPoint::chip_may_be_used() const {
  if (sending())
    return send_.chip != nullptr &&
           (send_.state == SendTask::State::streaming || send_.state == SendTask::State::done);
  return by_card_ && matched_;
}

bool PointToPoint::cancel() {
  const bool early = sending()
                         ? send_.state == SendTask::State::offered || send_.state == SendTask::State::queued
                         : receive_.state == RecvTask::State::posted;
  if (!early) return false;
  if (sending() && !messenger_.cancel(channel_, send_)) {
    engine_.complete(*this, {});  // some of it had left: the rest follows from a copy
    return false;
  }
  fail(Status::make(DICOMM_CANCELED, "canceled before it had matched"));
  return true;
}

bool PointToPoint::needs(int rank, bool gone) const {
  if (sending()) {
    if (send_.peer != rank) return false;
    return gone || send_.state == SendTask::State::offered;
  }
  if (receive_.state == RecvTask::State::posted) return receive_.peer == rank;
  return gone && receive_.source == rank && receive_.state == RecvTask::State::arriving;
}

std::string PointToPoint::waiting_for() const {
  const int peer = sending() ? send_.peer : receive_.peer;
  if (peer < 0) return concat("waiting for a message with tag ", receive_.key.tag, " from any rank");
  const std::string who = concat("rank ", peer, " (", channel_.peers[static_cast<size_t>(peer)].host, ")");
  if (!sending()) return concat("waiting for a message with tag ", receive_.key.tag, " from ", who);
  return concat("waiting for ", who, " to receive the message with tag ", send_.key.tag);
}

Status PointToPoint::describe(const Status &why) const {
  return why.with([&](Failure &f) {
    if (!f.op.empty()) return;
    f.op = opcode_name(opcode);
    f.rank = channel_.rank;
    f.bytes = bytes;
    f.waited_ns = now() - started;
    if (f.peer < 0) f.peer = sending() ? send_.peer : std::max(receive_.peer, receive_.source);
    if (f.peer >= 0) {
      f.peer_host = channel_.peers[static_cast<size_t>(f.peer)].host;
      f.path = messenger_.path(channel_, f.peer);
    }
  });
}

}  // namespace dicomm
