#include <algorithm>
#include <bit>
#include <cstring>

#include "transport/verbs/connection.h"

namespace dicomm {

namespace {

// Where the bytes go. Null: nowhere, the payload is dropped.
std::byte *place_of(const Incoming &into, const ChipMemory::Bounce &bounce) {
  return bounce ? bounce.get() : into.data;
}

}  // namespace

// Each of these: false when the connection is closed, by what was found or by a callback.
bool VerbsConnection::refuse(const std::string &what) {
  fail(Status::make(DICOMM_PROTOCOL, "it sent ", what, ", which dicomm never does"));
  return false;
}

// ---- frames ----

bool VerbsConnection::take_frame(const std::byte *frame, size_t bytes) {
  FrameHead head;
  if (bytes < sizeof(head)) return refuse("a frame without a head");
  std::memcpy(&head, frame, sizeof(head));
  if (sizeof(head) + head.bytes != bytes || head.acked - acked_ > next_ - acked_)
    return refuse("a false frame");
  acked_ = head.acked;
  if (head.kind == FrameKind::ack) return true;
  if (head.number != received_) return refuse(concat("frame ", head.number, " after ", received_, " frames"));
  ++received_;
  return on_frame(head, frame + sizeof(head));
}

bool VerbsConnection::on_frame(const FrameHead &head, const std::byte *body) {
  const auto take = [&](auto &into, auto handle) {
    if (head.bytes != sizeof(into)) return refuse("a frame of a false size");
    std::memcpy(&into, body, sizeof(into));
    return (this->*handle)(into);
  };
  if (peer_goodbye_ && head.kind != FrameKind::grant) return refuse("a message after its goodbye");
  switch (head.kind) {
    case FrameKind::message:
      return begin_message(body, head.bytes);
    case FrameKind::more:
      return more(body, head.bytes);
    case FrameKind::offer: {
      Offer offer;
      return take(offer, &VerbsConnection::on_offer);
    }
    case FrameKind::grant: {
      Grant grant;
      return take(grant, &VerbsConnection::on_grant);
    }
    case FrameKind::goodbye:
      peer_goodbye_ = true;
      answer_goodbye();
      return true;
    default:
      return refuse("a frame of an unknown kind");
  }
}

bool VerbsConnection::begin_message(const std::byte *body, size_t bytes) {
  uint64_t size = 0;
  if (incoming_ != nullptr || bytes < kHeaderBytes + sizeof(size)) return refuse("a false message");
  std::memcpy(header_.data(), body, kHeaderBytes);
  std::memcpy(&size, body + kHeaderBytes, sizeof(size));
  if (size > kVerbsMaxPayload) return refuse(concat("a message of ", size, " bytes"));
  payload_size_ = size;
  payload_read_ = 0;
  if (!announce(header_, size, incoming_)) return false;
  if (incoming_->chip != nullptr && incoming_->data != nullptr && size > 0) {
    incoming_bounce_ = bounce(*incoming_->chip, size);
    if (!incoming_bounce_) return false;
  }
  return more(body + kHeaderBytes + sizeof(size), bytes - kHeaderBytes - sizeof(size));
}

bool VerbsConnection::more(const std::byte *body, size_t bytes) {
  if (incoming_ == nullptr || bytes > payload_size_ - payload_read_) return refuse("more of no message");
  std::byte *const into = place_of(*incoming_, incoming_bounce_);
  if (into != nullptr && bytes > 0) std::memcpy(into + payload_read_, body, bytes);
  payload_read_ += bytes;
  if (payload_read_ < payload_size_) return true;
  return arrived(header_, payload_size_, std::exchange(incoming_, nullptr),
                 std::exchange(incoming_bounce_, nullptr));
}

// All of it is there, in its bounce if it has one.
bool VerbsConnection::arrived(const Header &header, size_t size, Incoming *into, ChipMemory::Bounce bounce) {
  if (!bounce || into->data == nullptr) {
    deliver(header, size, into);
    answer_goodbye();
    return fd_.valid();
  }
  const auto entry = arrived_.insert(arrived_.end(), {header, size, into});
  const auto copied = [this, entry](const Status &status) {
    const Arrived there = *entry;
    arrived_.erase(entry);
    if (!status.ok()) return fail(status);
    deliver(there.header, there.size, there.into);
    answer_goodbye();
    if (fd_.valid() && ended_ && arrived_.empty()) end_of_stream(*ended_);
  };
  const Status started = into->chip->to_chip(into->data, std::move(bounce), size, open_, copied);
  if (started.ok()) return true;
  arrived_.erase(entry);
  fail(started);
  return false;
}

// They hang up when they read it: not before all that came has been handed on.
void VerbsConnection::answer_goodbye() {
  if (!fd_.valid() || !peer_goodbye_ || goodbye_answered_ || !arrived_.empty() || !streaming_.empty()) return;
  if (std::any_of(ins_.begin(), ins_.end(), [](const In &in) { return in.state != In::free; })) return;
  goodbye_answered_ = true;
  stream_.push(RecordKind::farewell, 0);
  want_output();
}

// ---- large messages ----

bool VerbsConnection::on_offer(const Offer &offer) {
  if (offer.slot >= kVerbsSlots || offer.size > kVerbsMaxPayload || offer.size == 0)
    return refuse("a false offer");
  In &in = ins_[offer.slot];
  // The slot's last payload is there, for the sender knows; its completion is still in the other queue.
  const auto last = [&](const Completion &c) { return c.with_slot && c.imm == offer.slot; };
  if (in.state == In::granted && await_completion(last)) {
    const auto found = std::find_if(completions_.begin(), completions_.end(), last);
    const Completion completion = *found;
    completions_.erase(found);
    on_completion(completion);
    if (!fd_.valid()) return false;
  }
  if (in.state != In::free) return refuse("a second offer under one number");
  in.state = In::waiting;
  waiting_ |= 1u << offer.slot;
  in.header = offer.header;
  in.size = offer.size;
  return announce(in.header, in.size, in.into);  // the next write_queued() grants it
}

void VerbsConnection::grant_waiting() {
  if (our_down_ && !their_down_) return;  // they still count on the old grants
  for (uint32_t left = waiting_; left != 0; left &= left - 1)
    if (!grant(static_cast<uint32_t>(std::countr_zero(left)))) return;
}

// False: not now.
bool VerbsConnection::grant(uint32_t slot) {
  if (!window_open()) return false;
  In &in = ins_[slot];
  const bool of_chip = in.into->chip != nullptr && in.into->data != nullptr;
  Grant grant{slot, 0, 0, 0, 0};
  uint32_t port = 0;
  bool by_card = false;
  if (receives_from_link_) {
    if (!usable()) return false;
    grant.epoch = epoch_;
    grant.queue_pair = next_pair();
    port = rails_[grant.queue_pair];
    by_card = of_chip && !in.bounce && lend_chip(in.lent, port, in.into->data, in.size, kBothWays);
  }
  if (of_chip && !in.bounce && !by_card) {
    in.bounce = bounce(*in.into->chip, in.size);
    if (!in.bounce) return false;
  }
  if (receives_from_link_) {
    std::byte *const data = place_of(*in.into, in.bounce);
    if (!lend(in.lent, verbs_.staging_in, port, data, in.size, kBothWays)) return false;
    const bool direct = in.lent.region.valid();
    grant.rkey = direct ? in.lent.region->rkey : in.lent.staging->region(port)->rkey;
    grant.address = reinterpret_cast<uint64_t>(direct ? data : in.lent.staging->data());
  }
  waiting_ &= ~(1u << slot);
  in.state = receives_from_link_ ? In::granted : In::free;
  if (!receives_from_link_)
    streaming_.push_back(
        {slot, in.header, in.size, std::exchange(in.into, nullptr), std::exchange(in.bounce, nullptr)});
  std::memcpy(begin_frame(FrameKind::grant, sizeof(grant)), &grant, sizeof(grant));
  return true;
}

// The next in turn that the other side can write over.
uint32_t VerbsConnection::next_pair() {
  do {
    next_pair_ = next_pair_ + 1 < rails_.size() ? next_pair_ + 1 : 1;
  } while ((peer_proven_ >> next_pair_ & 1) == 0);
  return next_pair_;
}

bool VerbsConnection::on_grant(const Grant &grant) {
  // Of queue pairs that are gone: it will be granted again.
  if (grant.epoch != 0 && (grant.epoch != epoch_ || !usable())) return true;
  if (grant.slot >= kVerbsSlots || outs_[grant.slot].state != Out::offered)
    return refuse("a grant of no offer");
  if (grant.epoch != 0 && (grant.queue_pair == 0 || grant.queue_pair >= rails_.size()))
    return refuse("a grant on no queue pair");
  Out &out = outs_[grant.slot];
  out.grant = grant;
  out.state = Out::granted;
  granted_ |= 1u << grant.slot;
  write(out);
  return fd_.valid();
}

bool VerbsConnection::complete(In &in) {
  std::byte *const into = place_of(*in.into, in.bounce);
  if (in.lent.staging != nullptr && into != nullptr) std::memcpy(into, in.lent.staging->data(), in.size);
  in.lent.give_back(verbs_.staging_in);
  in.state = In::free;
  return arrived(in.header, in.size, std::exchange(in.into, nullptr), std::exchange(in.bounce, nullptr));
}

void VerbsConnection::revoke(Incoming &into) {
  for (uint32_t slot = 0; slot < kVerbsSlots; ++slot) {
    In &in = ins_[slot];
    if (in.into != &into || in.state != In::granted || in.bounce || !in.lent.region.valid()) continue;
    const auto done = [&](const Completion &c) { return c.with_slot && c.imm == slot; };
    if (!await_completion(done)) drop_link("a receive was taken back while its message was under way");
    in.lent.region.reset();
  }
  into.data = nullptr;
}

// ---- over the socket ----

bool VerbsConnection::on_record(const RecordHead &head, const std::byte *body) {
  const uint32_t epoch = head.epoch_or_slot;
  const bool current = epoch == epoch_;
  switch (head.kind) {
    case RecordKind::frame:
      return take_frame(body, head.bytes);
    case RecordKind::setup: {
      Setup setup;
      if (head.bytes != sizeof(setup)) return refuse("a false set-up");
      std::memcpy(&setup, body, sizeof(setup));
      on_setup(epoch, setup);
      break;
    }
    case RecordKind::ready:
      if (current) prove();
      break;
    case RecordKind::proven: {
      uint64_t pairs = 0;
      if (head.bytes != sizeof(pairs)) return refuse("a false record");
      std::memcpy(&pairs, body, sizeof(pairs));
      if (current) on_proven(pairs);
      break;
    }
    case RecordKind::change:
      if (current && usable()) return receive_from_link();
      break;
    case RecordKind::down: {
      Down down;
      if (head.bytes != sizeof(down)) return refuse("a false record");
      std::memcpy(&down, body, sizeof(down));
      down.text[sizeof(down.text) - 1] = 0;
      on_down(epoch, down);
      break;
    }
    case RecordKind::farewell:
      goodbye_ = Goodbye::answered;
      break;
    default:
      return refuse("a record of an unknown kind");
  }
  return fd_.valid();
}

bool VerbsConnection::on_payload_begins(uint32_t slot, size_t bytes) {
  streamed_ = std::find_if(streaming_.begin(), streaming_.end(),
                           [&](const Streamed &payload) { return payload.slot == slot; });
  return streamed_ != streaming_.end() && streamed_->size == bytes;
}

std::byte *VerbsConnection::payload_destination() { return place_of(*streamed_->into, streamed_->bounce); }

bool VerbsConnection::on_payload_ends() {
  Streamed all = std::move(*streamed_);
  streaming_.erase(streamed_);
  return arrived(all.header, all.size, all.into, std::move(all.bounce));
}

}  // namespace dicomm
