#include <errno.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "transport/verbs/connection.h"

namespace dicomm {

bool VerbsConnection::idle() const {
  return current_ == nullptr && rest_.empty() && control_.empty() && bulk_.empty();
}

Sent VerbsConnection::send(Outgoing &message) {
  message.progress = 0;
  const bool small = message.lane == Lane::control || (message.size <= kFirstRoom && message.chip == nullptr);
  if (carrier_ == Carrier::none || !idle() || !small || goodbye_ != Goodbye::none || !fd_.valid()) {
    enqueue(message);
    if (!polling_ && fd_.valid()) write_queued();
    if (!sent_.empty()) shared_.reactor.kick();
    return Sent::queued;
  }
  const bool complete = put(message);
  hand_over();
  if (complete) return Sent::done;
  current_ = &message;
  return Sent::queued;
}

void VerbsConnection::flush() { poll(); }

// ---- frames ----

// The window is open. The frame goes with the next hand_over().
std::byte *VerbsConnection::begin_frame(FrameKind kind, size_t bytes) {
  std::byte *const frame = memory_.outgoing(next_);
  const FrameHead head{kind, static_cast<uint16_t>(bytes), next_++, 0};
  std::memcpy(frame, &head, sizeof(head));
  return frame + sizeof(head);
}

void VerbsConnection::hand_over() {
  for (; handed_ != next_ && moves(); ++handed_) {
    std::byte *const frame = memory_.outgoing(handed_);
    FrameHead head;
    std::memcpy(&head, frame, sizeof(head));
    head.acked = told_ = received_;
    std::memcpy(frame, &head, sizeof(head));
    const size_t bytes = sizeof(head) + head.bytes;
    if (carrier_ == Carrier::socket) {
      stream_.push(RecordKind::frame, 0, frame, bytes);
      continue;
    }
    const int error = link_->send_frame(frame, bytes);
    if (error == ENOMEM) break;  // the queue is full of what has not completed yet
    if (error != 0) return post_failed(error, 0);
  }
  if (carrier_ == Carrier::socket) want_output();
}

// Tells the peer how much has come, when it may soon need to know.
void VerbsConnection::acknowledge() {
  // Over the socket there may never have been a set-up that told of a smaller window.
  if (received_ - told_ < (carrier_ == Carrier::link ? window_ : kLeastDepth) / 2) return;
  const FrameHead head{FrameKind::ack, 0, 0, received_};
  if (carrier_ == Carrier::socket) {
    stream_.push(RecordKind::frame, 0, &head, sizeof(head));
  } else if (moves()) {
    std::memcpy(memory_.ack(), &head, sizeof(head));
    if (link_->send_frame(memory_.ack(), sizeof(head)) != 0) return;
  } else {
    return;
  }
  told_ = received_;
}

// ---- small messages ----

// As much of it as the window takes. True: all.
bool VerbsConnection::put(Outgoing &message) {
  if (message.progress == 0) {
    if (!window_open()) return false;
    const size_t part = std::min(message.size, kFirstRoom);
    const uint64_t size = message.size;
    std::byte *at = begin_frame(FrameKind::message, kHeaderBytes + sizeof(size) + part);
    std::memcpy(at, message.header.data(), kHeaderBytes);
    std::memcpy(at + kHeaderBytes, &size, sizeof(size));
    if (part > 0) std::memcpy(at + kHeaderBytes + sizeof(size), message.data, part);
    message.progress = 1 + part;  // one more than what is in frames: 0 says that nothing is
  }
  while (message.progress - 1 < message.size) {
    if (!window_open()) return false;
    const size_t done = message.progress - 1, part = std::min(message.size - done, kFrameRoom);
    std::memcpy(begin_frame(FrameKind::more, part), message.data + done, part);
    message.progress += part;
  }
  count_sent(message.size);
  return true;
}

bool VerbsConnection::put_rest() {
  while (rest_put_ < rest_.size()) {
    if (!window_open()) return false;
    const size_t part = std::min(rest_.size() - rest_put_, kFrameRoom);
    std::memcpy(begin_frame(FrameKind::more, part), rest_.data() + rest_put_, part);
    rest_put_ += part;
  }
  rest_.clear();
  rest_put_ = 0;
  return true;
}

// What waits, as far as window and slots allow. True if anything moved.
bool VerbsConnection::write_queued() {
  if (!moves()) return false;
  const uint32_t before = next_;
  grant_waiting();
  write_granted();
  if (!fd_.valid()) return false;
  bool open = put_rest();
  while (open && fd_.valid()) {
    if (current_ == nullptr) {
      MessageQueue &queue = control_.empty() ? bulk_ : control_;
      if (queue.empty()) break;
      Outgoing &first = *queue.front();
      if (first.lane == Lane::bulk && (first.size > kFirstRoom || first.chip != nullptr)) {
        if (!offer(first)) break;
        queue.pop();
        continue;
      }
      current_ = queue.pop();
    }
    open = put(*current_);
    if (open) sent_.push(*std::exchange(current_, nullptr));
  }
  if (goodbye_ == Goodbye::wanted && idle() && window_open() &&
      std::all_of(outs_.begin(), outs_.end(), [](const Out &out) { return out.state == Out::free; })) {
    begin_frame(FrameKind::goodbye, 0);
    goodbye_ = Goodbye::written;
  }
  hand_over();
  return next_ != before;
}

// ---- large messages ----

bool VerbsConnection::offer(Outgoing &message) {
  const auto slot =
      std::find_if(outs_.begin(), outs_.end(), [](const Out &out) { return out.state == Out::free; });
  if (slot == outs_.end() || !window_open()) return false;
  slot->state = Out::offered;
  slot->message = &message;
  slot->size = message.size;
  const Offer offer{message.header, message.size, static_cast<uint32_t>(slot - outs_.begin())};
  std::memcpy(begin_frame(FrameKind::offer, sizeof(offer)), &offer, sizeof(offer));
  return true;
}

const std::byte *VerbsConnection::payload_of(const Out &out) const {
  if (out.bounce) return out.bounce.get();
  return out.message != nullptr ? out.message->data : out.copy.data();
}

void VerbsConnection::write_granted() {
  if (!fd_.valid()) return;
  for (uint32_t left = granted_; left != 0; left &= left - 1)
    if (!write(outs_[static_cast<size_t>(std::countr_zero(left))])) return;
}

// False: not now.
bool VerbsConnection::write(Out &out) {
  const uint32_t slot = out.grant.slot;
  const bool of_chip = out.message != nullptr && out.message->chip != nullptr && !out.bounce;
  if (out.fetching) return true;  // and then it comes here again
  if (out.grant.epoch == 0) {
    if (of_chip) return fetch(out);
    out.state = Out::streaming;
    granted_ &= ~(1u << slot);
    counters_.socket_bytes += out.size;
    stream_.push_payload(slot, payload_of(out), out.size);
    want_output();
    return true;
  }
  if (!usable() || out.grant.epoch != epoch_) return false;
  const uint32_t port = rails_[out.grant.queue_pair];
  const std::byte *data = payload_of(out);
  if (of_chip && !lend_chip(out.lent, port, data, out.size, 0)) return fetch(out);
  if (!lend(out.lent, verbs_.staging_out, port, data, out.size, 0)) return false;
  const bool direct = out.lent.region.valid();
  if (!direct) {
    std::memcpy(out.lent.staging->data(), data, out.size);
    data = out.lent.staging->data();
  }
  const uint32_t lkey = direct ? out.lent.region->lkey : out.lent.staging->region(port)->lkey;
  const int error = link_->write(out.grant, data, out.size, lkey);
  if (error == ENOMEM) return false;
  if (error != 0) return post_failed(error, out.grant.queue_pair), false;
  (direct ? counters_.direct_bytes : counters_.staged_bytes) += out.size;
  if (of_chip) counters_.chip_bytes += out.size;
  out.state = Out::writing;
  granted_ &= ~(1u << slot);
  return true;
}

// From the chip's memory into a bounce. False: the connection has failed.
bool VerbsConnection::fetch(Out &out) {
  ChipMemory &chip = *out.message->chip;
  out.bounce = bounce(chip, out.size);
  if (!out.bounce) return false;
  const auto fetched = [this, &out](const Status &status) {
    out.fetching = false;
    if (!status.ok()) return fail(status);
    shared_.reactor.kick();
  };
  const Status started = chip.to_host(out.bounce, out.message->data, out.size, open_, fetched);
  if (!started.ok()) return fail(started), false;
  out.fetching = true;
  return true;
}

void VerbsConnection::sent(Out &out) {
  out.lent.give_back(verbs_.staging_out);
  out.state = Out::free;
  out.copy = {};
  out.bounce.reset();
  count_sent(out.size);
  if (Outgoing *const message = std::exchange(out.message, nullptr)) sent_.push(*message);
}

void VerbsConnection::on_payload_written(uint32_t slot) { sent(outs_[slot]); }

// The queue pairs are gone. `pending`: a bit per slot whose payload has not come.
void VerbsConnection::withdraw_grants(uint32_t pending) {
  for (uint32_t slot = 0; slot < kVerbsSlots; ++slot) {
    Out &out = outs_[slot];
    if ((out.state != Out::granted && out.state != Out::writing) || out.grant.epoch == 0) continue;
    if (out.state == Out::writing && (pending >> slot & 1) == 0) {
      sent(out);
      continue;
    }
    out.lent.give_back(verbs_.staging_out);
    out.state = Out::offered;  // they grant it again
    granted_ &= ~(1u << slot);
  }
}

VerbsConnection::Canceled VerbsConnection::cancel(Outgoing &message) {
  if (current_ == &message) {
    const size_t done = message.progress == 0 ? 0 : message.progress - 1;
    current_ = nullptr;
    if (message.progress == 0) return Canceled::unsent;
    rest_.assign(message.data + done, message.data + message.size);
    rest_put_ = 0;
    return Canceled::partly;
  }
  if (control_.remove(message) || bulk_.remove(message)) return Canceled::unsent;
  for (Out &out : outs_) {
    if (out.message != &message) continue;
    if (message.chip == nullptr)
      out.copy.assign(message.data, message.data + message.size);
    else if (!out.bounce)
      out.copy.assign(message.size, std::byte{0});
    out.message = nullptr;
    const auto slot = static_cast<uint32_t>(&out - outs_.data());
    if (out.state == Out::streaming) stream_.move_payload(slot, payload_of(out));
    // The card may still read the message's own memory: it has to stop before the caller reuses that.
    const auto done = [&](const Completion &c) { return c.work == Work::write && c.index == slot; };
    if (out.state == Out::writing && !out.bounce && out.lent.region.valid() && !await_completion(done))
      drop_link("a message was taken back while it was under way");
    if (out.state != Out::writing) out.lent.region.reset();
    return Canceled::partly;
  }
  return sent_.remove(message) ? Canceled::partly : Canceled::unknown;
}

}  // namespace dicomm
