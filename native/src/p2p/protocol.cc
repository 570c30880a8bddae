// The eager and rendezvous protocols of Messenger.

#include <algorithm>
#include <cstring>

#include "base/names.h"
#include "p2p/messenger.h"

namespace dicomm {

Status Messenger::has_left(const Channel &channel, int rank) {
  return Status::make(DICOMM_PEER_LOST, "rank ", rank, " (", channel.peers[static_cast<size_t>(rank)].host,
                      ") has closed the communicator and takes no part");
}

std::optional<Status> Messenger::send(Channel &channel, SendTask &task) {
  Link &to = link(channel, task.peer);
  if (to.endpoint == nullptr) return to.gone;
  if (channel.left.contains(task.peer)) return has_left(channel, task.peer);
  Wire wire;
  wire.set(task.fingerprint);
  wire.set(task.key);
  wire.source = static_cast<uint32_t>(channel.rank);
  wire.comm = channel.id;
  wire.bytes = task.bytes;
  task.link = &to;
  task.packet.task = &task;
  const uint64_t cost = task.bytes + kEntryCost;
  const bool eager = task.available >= task.bytes && task.chip == nullptr &&
                     task.bytes <= std::min<uint64_t>(eager_bytes_, to.endpoint->limits().max_payload) &&
                     to.eager_outstanding + cost <= kEagerWindow;
  ++to.messages_sent;
  to.bytes_sent += task.bytes;
  if (eager) {
    to.eager_outstanding += cost;
    wire.type = MessageType::eager;
    task.packet.data = task.data;
    task.packet.size = task.bytes;
    task.state = SendTask::State::queued;
  } else {
    task.id = wire.id = ++ids_;
    wire.type = MessageType::rts;
    to.offers[task.id] = &task;
    task.state = SendTask::State::offered;
  }
  task.packet.header = encode(wire);
  task.packet_queued = to.endpoint->send(task.packet) == Sent::queued;
  if (!eager || task.packet_queued) return std::nullopt;
  task.state = SendTask::State::done;
  return Status();
}

bool Messenger::carries(const Channel &channel, int rank, const ChipMemory &chip, uint64_t bytes) const {
  const Link *const link = channel.links[static_cast<size_t>(rank)];
  return bytes > eager_bytes_ && link != nullptr && link->endpoint != nullptr &&
         link->endpoint->carries(chip);
}

std::optional<Status> Messenger::receive(Channel &channel, RecvTask &task) {
  if (task.peer != DICOMM_ANY_SOURCE) {
    const bool first = channel.links[static_cast<size_t>(task.peer)] == nullptr;
    const Link &from = link(channel, task.peer);
    // A rank that has left answers with bye; without a word from us it would not know that we wait.
    if (first && task.peer != channel.rank) {
      Wire hello;
      hello.type = MessageType::hello;
      notify(channel, task.peer, hello);
    }
    auto message = channel.post(task);
    if (message) return claim(task, std::move(message));
    if (from.endpoint != nullptr && !channel.left.contains(task.peer)) return std::nullopt;
    channel.remove(task);
    task.state = RecvTask::State::done;
    return from.endpoint == nullptr ? from.gone : has_left(channel, task.peer);
  }
  auto message = channel.post(task);
  return message ? claim(task, std::move(message)) : std::nullopt;
}

// Where the message goes if the host takes it. Null, and a failure of the task: there is no memory.
std::byte *Messenger::host_data(RecvTask &task) {
  if (task.data != nullptr || task.bytes == 0 || !task.failure.ok()) return task.data;
  task.data = task.owner->host_memory(task);
  if (task.data == nullptr)
    task.failure = Status::make(DICOMM_NO_MEMORY, "no host memory for a message of ", task.bytes, " bytes");
  return task.data;
}

// The receive takes this message. What does not fit is found here and reported when the bytes have passed.
void Messenger::bind(RecvTask &task, Link &link, const Wire &wire) {
  task.state = RecvTask::State::arriving;
  task.link = &link;
  task.source = static_cast<int>(wire.source);
  task.bytes = wire.bytes;
  task.owner->on_matched(task);
  if (task.key.collective) {
    if (wire.bytes != task.capacity) {
      task.failure = Status::make(DICOMM_MISMATCH, "rank ", wire.source, " sent ", wire.bytes,
                                  " bytes where this rank expects ", task.capacity,
                                  "; the counts given on the two ranks do not agree");
    }
    return;
  }
  const bool raw = wire.dtype == DICOMM_UINT8 || task.fingerprint.dtype == DICOMM_UINT8;
  if (!raw && wire.dtype != task.fingerprint.dtype) {
    task.failure = Status::make(DICOMM_MISMATCH, "rank ", wire.source, " sent ", dtype_name(wire.dtype),
                                " and this rank receives ", dtype_name(task.fingerprint.dtype));
  } else if (wire.bytes > task.capacity) {
    task.failure = Status::make(DICOMM_TRUNCATED, "rank ", wire.source, " sent ", wire.bytes,
                                " bytes and the receive buffer holds ", task.capacity);
  }
}

std::optional<Status> Messenger::claim(RecvTask &task, std::unique_ptr<Unexpected> message) {
  bind(task, *message->link, message->wire);
  if (message->wire.type == MessageType::rts) {
    ask(task, message->wire);
    if (task.failure.ok() && task.bytes > 0) return std::nullopt;
    task.state = RecvTask::State::done;
    return task.failure;
  }
  if (!message->complete) {
    message->claimant = &task;
    task.claimed = message.get();
    claimed_[message.get()] = std::move(message);
    return std::nullopt;
  }
  if (std::byte *const into = host_data(task); task.failure.ok() && task.bytes > 0)
    std::memcpy(into, message->payload.get(), task.bytes);
  consumed(*message->link, task.bytes + kEntryCost);
  recycle(std::move(message));
  task.state = RecvTask::State::done;
  return task.failure;
}

Incoming *Messenger::on_eager(Channel &channel, Link &link, const Wire &wire, size_t size) {
  const int source = static_cast<int>(wire.source);
  Arrival *into = arrival(link);
  const bool sane = channel.owner == nullptr || !wire.key().collective ||
                    channel.owner->on_fingerprint(source, wire.seq, wire.fingerprint());
  if (!sane) return into;  // the communicator has failed; the payload is read and dropped
  if (RecvTask *task = channel.match(source, wire.key())) {
    bind(*task, link, wire);
    into->task = task;
    std::byte *const place = host_data(*task);
    into->data = task->failure.ok() ? place : nullptr;
    task->arrivals.push_back(into);
    return into;
  }
  auto message = unexpected(wire, link, size);
  into->data = message->payload.get();
  into->unexpected = &channel.keep(std::move(message));
  return into;
}

void Messenger::on_eager_payload(Arrival &arrival, const Wire &wire) {
  RecvTask *task = arrival.task;
  Unexpected *unexpected = arrival.unexpected;
  Link &link = *arrival.link;
  recycle(&arrival);
  if (unexpected == nullptr) {
    consumed(link, wire.bytes + kEntryCost);
    if (task != nullptr) finish(*task, task->failure);
    return;
  }
  unexpected->complete = true;
  const auto claimed = claimed_.find(unexpected);
  if (claimed == claimed_.end()) return;
  const std::unique_ptr<Unexpected> message = std::move(claimed->second);
  claimed_.erase(claimed);
  consumed(link, wire.bytes + kEntryCost);
  task = message->claimant;
  if (task == nullptr) return;
  task->claimed = nullptr;
  if (std::byte *const place = host_data(*task); task->failure.ok() && task->bytes > 0)
    std::memcpy(place, message->payload.get(), task->bytes);
  finish(*task, task->failure);
}

void Messenger::on_offer(Channel &channel, Link &link, const Wire &wire) {
  const int source = static_cast<int>(wire.source);
  if (channel.owner != nullptr && wire.key().collective &&
      !channel.owner->on_fingerprint(source, wire.seq, wire.fingerprint())) {
    return;
  }
  if (RecvTask *task = channel.match(source, wire.key())) {
    bind(*task, link, wire);
    ask(*task, wire);
    if (!task->failure.ok() || task->bytes == 0) finish(*task, task->failure);
    return;
  }
  channel.keep(unexpected(wire, link, 0));
}

// Answers an offer: send it, or why it will never be taken.
void Messenger::ask(RecvTask &task, const Wire &wire) {
  Wire answer;
  answer.comm = wire.comm;
  answer.id = wire.id;
  if (!task.failure.ok()) {
    answer.type = MessageType::refuse;
    answer.count = static_cast<uint64_t>(task.failure.code());
    answer.bytes = task.capacity;
  } else {
    answer.type = MessageType::cts;
    answer.count = ++ids_;
    task.sender_id = wire.id;
    if (task.bytes > 0) {  // else nothing will come, and the receive is over
      task.id = answer.count;
      task.link->receives[task.id] = &task;
    }
  }
  transmit(*task.link, answer);
}

void Messenger::on_clear(Link &link, const Wire &wire) {
  const auto found = link.offers.find(wire.id);
  if (found == link.offers.end()) {  // withdrawn meanwhile: the receive that asked must not wait
    Wire answer;
    answer.type = MessageType::withdraw;
    answer.comm = wire.comm;
    answer.count = wire.count;
    transmit(link, answer);
    return;
  }
  SendTask &task = *found->second;
  if (task.state != SendTask::State::offered) return;
  task.state = SendTask::State::streaming;
  task.peer_id = wire.count;
  task.stream = std::make_unique<Chunks>();
  pump(task);
}

void Messenger::resume(SendTask &task) {
  if (task.state == SendTask::State::streaming) pump(task);
}

void Messenger::pump(SendTask &task) {
  Chunks &stream = *task.stream;
  Link &link = *task.link;
  const uint64_t there = std::min(task.bytes, task.available);
  for (int slot = 0; stream.offset < there && slot < Chunks::kWindow;) {
    if (stream.busy[slot]) {
      ++slot;
      continue;
    }
    Packet &packet = stream.chunks[slot];
    Wire wire;
    wire.type = MessageType::data;
    wire.id = task.peer_id;
    wire.count = stream.offset;
    packet.header = encode(wire);
    packet.task = &task;
    packet.chunk = true;
    packet.lane = Lane::bulk;
    packet.data = task.data + stream.offset;
    packet.chip = task.chip;
    packet.size = std::min<uint64_t>(link.endpoint->limits().bulk_chunk, there - stream.offset);
    packet.progress = 0;
    stream.offset += packet.size;
    if (link.endpoint->send(packet) == Sent::done) {
      stream.sent += packet.size;
    } else {
      stream.busy[slot] = true;
    }
  }
  if (stream.sent == task.bytes) finish(task, {});
}

Incoming *Messenger::on_data(Link &link, const Wire &wire, size_t size) {
  const auto found = link.receives.find(wire.id);
  Arrival *into = arrival(link);
  if (found == link.receives.end()) return into;  // the receive was taken back
  RecvTask &task = *found->second;
  if (wire.count > task.bytes || size > task.bytes - wire.count) {
    recycle(into);
    return nullptr;
  }
  into->task = &task;
  into->offset = wire.count;
  if (task.chip != nullptr && link.endpoint->carries(*task.chip)) {
    into->data = task.on_chip + wire.count;
    into->chip = task.chip;
  } else if (std::byte *const place = host_data(task)) {
    into->data = place + wire.count;
  }
  task.arrivals.push_back(into);
  return into;
}

void Messenger::on_data_payload(Arrival &arrival, size_t size) {
  RecvTask *task = arrival.task;
  const uint64_t offset = arrival.offset;
  const bool on_chip = arrival.chip != nullptr;
  recycle(&arrival);
  if (task == nullptr) return;
  task->received += size;
  if (task->tells_parts && task->failure.ok()) task->owner->on_part(*task, offset, size, on_chip);
  if (task->received == task->bytes) finish(*task, task->failure);
}

void Messenger::take_back_chunks(SendTask &task) {
  if (!task.stream || task.link->endpoint == nullptr) return;
  for (int slot = 0; slot < Chunks::kWindow; ++slot) {
    if (task.stream->busy[slot]) task.link->endpoint->cancel(task.stream->chunks[slot]);
    task.stream->busy[slot] = false;
  }
}

void Messenger::on_refuse(Link &link, const Wire &wire) {
  const auto found = link.offers.find(wire.id);
  if (found == link.offers.end()) return;
  take_back_chunks(*found->second);
  const auto code = static_cast<dicomm_status>(wire.count);
  const char *text = dicomm_status_text(static_cast<int32_t>(code));
  finish(*found->second,
         Status::make(text == nullptr ? DICOMM_PROTOCOL : code,
                      "the receiver did not take the message: ", text == nullptr ? "unknown reason" : text));
}

void Messenger::on_withdraw(Link &link, const Wire &wire) {
  const auto found = link.receives.find(wire.count);
  if (found == link.receives.end()) return;
  RecvTask &task = *found->second;
  const auto channel = channels_.find(wire.comm);
  if (!task.key.collective && channel != channels_.end()) {
    // The receive takes the next message that fits, as if this one had never been offered.
    unbind(task);
    if (auto message = channel->second->post(task)) {
      if (const auto end = claim(task, std::move(message))) finish(task, *end);
    }
    return;
  }
  finish(task,
         Status::make(DICOMM_CANCELED, "the sender took the message back before all of it had been sent"));
}

void Messenger::finish(SendTask &task, const Status &status) {
  task.state = SendTask::State::done;
  if (task.id != 0) task.link->offers.erase(task.id);
  task.owner->on_sent(task, status);
}

void Messenger::finish(RecvTask &task, const Status &status) {
  unbind(task);
  task.state = RecvTask::State::done;
  task.owner->on_received(task, status);
}

// Ends what the receive has with its message; what still comes of it is dropped.
void Messenger::unbind(RecvTask &task) {
  if (task.id != 0) task.link->receives.erase(task.id);
  task.id = 0;
  task.received = 0;
  for (Arrival *arrival : task.arrivals) {
    arrival->task = nullptr;
    if (arrival->link->endpoint != nullptr) arrival->link->endpoint->revoke(*arrival);
  }
  task.arrivals.clear();
  if (task.claimed != nullptr) task.claimed->claimant = nullptr;
  task.claimed = nullptr;
}

void Messenger::consumed(Link &link, uint64_t bytes) {
  link.eager_consumed += bytes;
  if (link.eager_consumed < kEagerWindow / 4) return;
  Wire wire;
  wire.type = MessageType::credit;
  wire.bytes = std::exchange(link.eager_consumed, 0);
  transmit(link, wire);
}

bool Messenger::cancel(Channel &channel, SendTask &task) {
  const auto state = std::exchange(task.state, SendTask::State::done);
  if (state == SendTask::State::idle || state == SendTask::State::done) return false;
  Link &link = *task.link;
  if (task.id != 0) link.offers.erase(task.id);
  if (link.endpoint == nullptr) return true;
  const bool unsent = task.packet_queued && link.endpoint->cancel(task.packet);
  if (task.id == 0) {
    if (unsent) link.eager_outstanding -= std::min(link.eager_outstanding, task.bytes + kEntryCost);
    return unsent;
  }
  take_back_chunks(task);
  if (unsent) return true;
  Wire wire;
  wire.type = MessageType::withdraw;
  wire.comm = channel.id;
  wire.source = static_cast<uint32_t>(channel.rank);
  wire.id = task.id;
  wire.count = task.peer_id;
  transmit(link, wire);
  return true;
}

void Messenger::cancel(Channel &channel, RecvTask &task) {
  const auto state = std::exchange(task.state, RecvTask::State::done);
  if (state == RecvTask::State::posted) channel.remove(task);
  if (state != RecvTask::State::arriving) return;
  const bool rendezvous = task.id != 0;
  unbind(task);
  if (!rendezvous) return;
  Wire wire;
  wire.type = MessageType::refuse;
  wire.comm = channel.id;
  wire.id = task.sender_id;
  wire.count = DICOMM_CANCELED;
  transmit(*task.link, wire);
}

}  // namespace dicomm
