#include "p2p/messenger.h"

#include <algorithm>

namespace dicomm {

namespace {

constexpr size_t kMaxText = 4096;  // of a failure that travels

}  // namespace

Messenger::~Messenger() = default;

Channel &Messenger::attach(uint64_t comm, ChannelOwner &owner, int rank, std::vector<PeerAddress> peers) {
  auto &slot = channels_[comm];
  if (slot) {
    --early_channels_;
  } else {
    slot = std::make_unique<Channel>(comm);
  }
  Channel &channel = *slot;
  channel.owner = &owner;
  channel.rank = rank;
  channel.peers = std::move(peers);
  channel.links.assign(channel.peers.size(), nullptr);
  return channel;
}

// Does this peer's process hold the rank it speaks for?
bool Messenger::holds(const Channel &channel, int rank, const Link &link) {
  return rank >= 0 && static_cast<size_t>(rank) < channel.peers.size() &&
         channel.peers[static_cast<size_t>(rank)].id == link.address.id;
}

void Messenger::replay(Channel &channel) {
  drop_unexpected(
      channel, [&](int source, const Unexpected &message) { return !holds(channel, source, *message.link); });
  auto early = std::move(channel.early);
  channel.early.clear();
  for (const auto &message : early) {
    const int source = static_cast<int>(message.wire.source);
    if (holds(channel, source, *message.link)) deliver(channel, source, message.wire, message.text);
  }
  for (size_t r = 0; r < channel.peers.size(); ++r) {
    const auto known = links_.find(channel.peers[r].id);
    if (known == links_.end()) continue;
    channel.links[r] = known->second.get();  // who is connected anyway will hear of our leaving
    if (known->second->endpoint == nullptr) tell_gone(channel, *known->second, static_cast<int>(r));
  }
}

bool Messenger::attached(uint64_t comm) const {
  const auto found = channels_.find(comm);
  return found != channels_.end() && found->second->owner != nullptr;
}

// Messages nobody will ask for: their senders get their credit back, or hear that an offer is void; what is
// still arriving arrives nowhere.
template <class Dropped>
void Messenger::drop_unexpected(Channel &channel, Dropped dropped) {
  for (const auto &message : channel.take_if(dropped)) {
    for (const auto &arrival : arrivals_) {
      if (arrival->unexpected != message.get()) continue;
      arrival->unexpected = nullptr;
      arrival->data = nullptr;
    }
    if (message->wire.type == MessageType::rts) {
      answer_late(*message->link, message->wire);
    } else if (message->complete) {
      consumed(*message->link, message->wire.bytes + kEntryCost);
    }
  }
}

void Messenger::detach(Channel &channel, Farewell farewell) {
  drop_unexpected(channel, [](int, const Unexpected &) { return true; });
  farewell.wire.comm = channel.id;
  farewell.wire.source = static_cast<uint32_t>(channel.rank);
  farewell.text.resize(std::min(farewell.text.size(), kMaxText));
  if (closed_.size() >= kClosedKept) closed_.clear();
  closed_.emplace(channel.id, std::move(farewell));
  channels_.erase(channel.id);
}

// To a message for a communicator that was closed here.
void Messenger::answer_late(Link &link, const Wire &wire) {
  if (wire.type == MessageType::bye || wire.type == MessageType::fail) return;
  const auto closed = closed_.find(wire.comm);
  const bool failed = closed != closed_.end() && closed->second.wire.type == MessageType::fail;
  if (wire.type == MessageType::rts && !failed) {
    Wire answer;
    answer.type = MessageType::refuse;
    answer.comm = wire.comm;
    answer.id = wire.id;
    answer.count = DICOMM_PEER_LOST;
    transmit(link, answer);
  } else if (closed != closed_.end()) {
    transmit(link, closed->second.wire, closed->second.text);
  }
}

Link &Messenger::link_to(const PeerAddress &peer) {
  auto &slot = links_[peer.id];
  if (slot) {
    // It may have connected to us before a communicator told who it is.
    if (slot->address.host.empty()) slot->address = peer;
    return *slot;
  }
  slot = std::make_unique<Link>();
  slot->address = peer;
  Transport *transport = choose_transport(*transports_, peer);
  if (transport == nullptr) {
    slot->gone =
        Status::make(DICOMM_CONNECT_FAILED, "no transport reaches ", peer.host, " at ", peer.address);
    return *slot;
  }
  slot->endpoint = &transport->endpoint(peer);
  slot->endpoint->user = slot.get();
  return *slot;
}

Link &Messenger::link_of(Endpoint &endpoint) {
  if (endpoint.user != nullptr) return *static_cast<Link *>(endpoint.user);
  auto &slot = links_[endpoint.peer()];
  if (!slot) slot = std::make_unique<Link>();
  slot->address.id = endpoint.peer();
  slot->endpoint = &endpoint;
  endpoint.user = slot.get();
  return *slot;
}

Link &Messenger::link(Channel &channel, int rank) {
  Link *&link = channel.links[static_cast<size_t>(rank)];
  if (link == nullptr) link = &link_to(channel.peers[static_cast<size_t>(rank)]);
  return *link;
}

const char *Messenger::path(const Channel &channel, int rank) const {
  const Link *link = channel.links[static_cast<size_t>(rank)];
  return link == nullptr || link->endpoint == nullptr ? "" : link->endpoint->path();
}

Messenger::Lookup Messenger::find_channel(const Wire &wire, const Link &link, Channel *&channel) {
  const auto found = channels_.find(wire.comm);
  if (found == channels_.end()) {
    if (closed_.contains(wire.comm)) return Lookup::closed;
    if (early_channels_ >= kEarlyChannels) return Lookup::refused;
    ++early_channels_;
    channel = channels_.emplace(wire.comm, std::make_unique<Channel>(wire.comm)).first->second.get();
    return Lookup::found;
  }
  channel = found->second.get();
  if (channel->owner == nullptr) return Lookup::found;
  // Only the process that holds the rank may speak for it.
  const bool genuine =
      wire.source < channel->peers.size() && channel->peers[wire.source].id == link.address.id;
  return genuine ? Lookup::found : Lookup::refused;
}

void Messenger::transmit(Link &link, const Wire &wire, const std::string &text) {
  if (link.endpoint == nullptr) return;
  link.control.push_back(std::make_unique<Packet>());
  Packet &packet = *link.control.back();
  packet.header = encode(wire);
  const auto *bytes = reinterpret_cast<const std::byte *>(text.data());
  packet.text.assign(bytes, bytes + text.size());
  packet.data = packet.text.data();
  packet.size = packet.text.size();
  if (link.endpoint->send(packet) == Sent::done) link.control.pop_back();
}

void Messenger::notify(Channel &channel, int rank, Wire wire, const std::string &text) {
  wire.comm = channel.id;
  wire.source = static_cast<uint32_t>(channel.rank);
  transmit(link(channel, rank), wire, text.substr(0, kMaxText));
}

Status Messenger::share(Channel &channel, int rank, int fd) {
  const Link &to = link(channel, rank);
  if (to.endpoint == nullptr) return to.gone;
  DICOMM_TRY(to.endpoint->hand_over(fd));
  Wire wire;
  wire.type = MessageType::share;
  notify(channel, rank, wire);
  return {};
}

Arrival *Messenger::arrival(Link &link) {
  if (free_arrivals_.empty()) {
    arrivals_.push_back(std::make_unique<Arrival>());
    free_arrivals_.push_back(arrivals_.back().get());
  }
  Arrival *arrival = free_arrivals_.back();
  free_arrivals_.pop_back();
  arrival->link = &link;
  return arrival;
}

void Messenger::recycle(Arrival *arrival) {
  if (arrival->task != nullptr) std::erase(arrival->task->arrivals, arrival);
  *arrival = Arrival{};
  free_arrivals_.push_back(arrival);
}

// With room for `size` bytes.
std::unique_ptr<Unexpected> Messenger::unexpected(const Wire &wire, Link &link, size_t size) {
  std::unique_ptr<Unexpected> message;
  if (spare_unexpected_.empty()) {
    message = std::make_unique<Unexpected>();
  } else {
    message = std::move(spare_unexpected_.back());
    spare_unexpected_.pop_back();
  }
  message->wire = wire;
  message->link = &link;
  message->complete = false;
  message->claimant = nullptr;
  if (message->capacity < size) {
    message->payload = std::make_unique_for_overwrite<std::byte[]>(size);
    message->capacity = size;
  }
  return message;
}

// Small ones are kept: a message often comes just before it is asked for.
void Messenger::recycle(std::unique_ptr<Unexpected> message) {
  if (message->capacity > kSparePayload || spare_unexpected_.size() >= kSpareUnexpected) return;
  spare_unexpected_.push_back(std::move(message));
}

void Messenger::drop_arrivals(Link &link) {
  for (auto &arrival : arrivals_) {
    if (arrival->link == &link) recycle(arrival.get());
  }
}

Incoming *Messenger::on_header(Endpoint &from, const Header &header, size_t size) {
  Link &link = link_of(from);
  const Wire wire = decode(header);
  if (wire.type == MessageType::data) return on_data(link, wire, size);
  if (wire.type == MessageType::eager) {
    Channel *channel = nullptr;
    if (size != wire.bytes) return nullptr;
    switch (find_channel(wire, link, channel)) {
      case Lookup::found:
        return on_eager(*channel, link, wire, size);
      case Lookup::closed:
        answer_late(link, wire);
        return arrival(link);  // nobody will ask for it
      case Lookup::refused:
        return nullptr;
    }
  }
  if (wire.type < MessageType::eager || wire.type > MessageType::wake || size > kMaxText) return nullptr;
  if (size > 0 && wire.type != MessageType::fail) return nullptr;
  Arrival *into = arrival(link);
  into->text.resize(size);
  into->data = into->text.data();
  return into;
}

void Messenger::on_payload(Endpoint &from, const Header &header, size_t size, Incoming *into) {
  Link &link = link_of(from);
  const Wire wire = decode(header);
  auto *arrival = static_cast<Arrival *>(into);
  ++link.messages_received;
  link.bytes_received += size;
  if (wire.type == MessageType::eager) {
    on_eager_payload(*arrival, wire);
    return;
  }
  if (wire.type == MessageType::data) {
    on_data_payload(*arrival, size);
    return;
  }
  const std::string text(reinterpret_cast<const char *>(arrival->text.data()), arrival->text.size());
  recycle(arrival);
  on_control(link, wire, text);
}

void Messenger::on_control(Link &link, const Wire &wire, const std::string &text) {
  switch (wire.type) {
    case MessageType::cts:
      return on_clear(link, wire);
    case MessageType::refuse:
      return on_refuse(link, wire);
    case MessageType::credit:
      link.eager_outstanding -= std::min(link.eager_outstanding, wire.bytes);
      return;
    default:
      break;
  }
  if (wire.type == MessageType::withdraw && wire.count != 0) return on_withdraw(link, wire);
  UniqueFd handed = wire.type == MessageType::share ? link.endpoint->take_handed() : UniqueFd();
  Channel *channel = nullptr;
  switch (find_channel(wire, link, channel)) {
    case Lookup::refused:
      return;  // it does not hold the rank it claims; what it says about it is void
    case Lookup::closed:
      return answer_late(link, wire);
    case Lookup::found:
      break;
  }
  if (wire.type == MessageType::rts) return on_offer(*channel, link, wire);
  if (wire.type == MessageType::withdraw) return channel->withdraw(link, wire.id);
  if (wire.type == MessageType::share) {
    channel->shared = std::move(handed);
    return;
  }
  if (channel->owner != nullptr) return deliver(*channel, static_cast<int>(wire.source), wire, text);
  if (channel->early.size() < kEarlyMessages) channel->early.push_back({&link, wire, text});
}

void Messenger::deliver(Channel &channel, int source, const Wire &wire, const std::string &text) {
  switch (wire.type) {
    case MessageType::hello:
      return channel.owner->on_hello(source);
    case MessageType::bye:
      return channel.owner->on_bye(source);
    case MessageType::fail:
      return channel.owner->on_remote_failure(source, static_cast<dicomm_status>(wire.id), text, wire);
    case MessageType::probe:
      return channel.owner->on_probe(source, wire.seq, wire.fingerprint());
    default:
      return;
  }
}

void Messenger::on_sent(Endpoint &to, Outgoing &message) {
  Link &link = link_of(to);
  auto &packet = static_cast<Packet &>(message);
  if (packet.task == nullptr) {
    const auto found = std::find_if(link.control.begin(), link.control.end(),
                                    [&](const auto &p) { return p.get() == &packet; });
    if (found != link.control.end()) link.control.erase(found);
    return;
  }
  SendTask &task = *packet.task;
  if (packet.chunk) {
    task.stream->busy[&packet - task.stream->chunks] = false;
    task.stream->sent += packet.size;
    pump(task);
    return;
  }
  task.packet_queued = false;
  if (task.state == SendTask::State::queued) finish(task, {});
}

void Messenger::on_failed(Endpoint &endpoint, const Status &why, bool clean) {
  if (endpoint.user == nullptr) return;
  Link &link = *static_cast<Link *>(endpoint.user);
  link.endpoint = nullptr;
  link.gone = why;
  link.control.clear();
  link.eager_outstanding = link.eager_consumed = 0;
  drop_arrivals(link);
  link.left = clean;
  std::erase_if(claimed_, [&](const auto &entry) {
    if (entry.second->link != &link) return false;
    if (entry.second->claimant != nullptr) entry.second->claimant->claimed = nullptr;
    return true;
  });
  std::vector<std::pair<Channel *, int>> concerned;
  for (auto &[id, channel] : channels_) {
    channel->forget(link);
    if (channel->owner == nullptr) continue;
    for (size_t rank = 0; rank < channel->peers.size(); ++rank) {
      if (channel->peers[rank].id == link.address.id)
        concerned.emplace_back(channel.get(), static_cast<int>(rank));
    }
  }
  for (const auto &[channel, rank] : concerned) tell_gone(*channel, link, rank);
}

void Messenger::tell_gone(Channel &channel, const Link &link, int rank) {
  if (link.left) {
    channel.owner->on_bye(rank);
  } else {
    channel.owner->on_peer_lost(rank, link.gone);
  }
}

}  // namespace dicomm
