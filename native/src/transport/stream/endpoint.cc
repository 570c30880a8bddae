#include "transport/stream/endpoint.h"

#include <algorithm>

namespace dicomm {

StreamEndpoint::StreamEndpoint(StreamShared &shared, Owner &owner, const ContextId &peer, std::string host,
                               uint64_t process)
    : shared_(shared), owner_(owner), peer_(peer), host_(std::move(host)), process_(process) {}

StreamEndpoint::~StreamEndpoint() { shared_.reactor.cancel(yield_deadline_); }

// ---- connecting ----

void StreamEndpoint::connect_to(const SocketAddress &address, const Key &key) {
  address_ = address;
  key_ = key;
  initiator_ = true;
  attempt(0);
}

void StreamEndpoint::attempt(uint32_t index) {
  StreamHello hello{};
  const PeerAddress &self = shared_.options.self;
  hello.id = self.id;
  hello.target = peer_;
  hello.index = index;
  hello.process = self.process;
  self.host.copy(hello.host, sizeof(hello.host) - 1);
  Attempt::Owner &attempt_owner = *this;
  attempts_.push_back(std::make_unique<Attempt>(shared_, attempt_owner, address_, key_, hello));
  attempts_.back()->start();
}

void StreamEndpoint::drop_attempt(const Attempt &attempt) {
  std::erase_if(attempts_, [&](const auto &other) { return other.get() == &attempt; });
}

void StreamEndpoint::connected(Attempt &attempt, UniqueFd fd) {
  const uint32_t index = attempt.index();
  drop_attempt(attempt);
  establish(index, std::move(fd));
}

void StreamEndpoint::yielded(Attempt &attempt) {
  drop_attempt(attempt);
  state_ = State::yielded;
  initiator_ = false;
  yield_deadline_ = shared_.reactor.at(deadline_after(shared_.options.connect_timeout), [this] {
    doom(Status::make(DICOMM_CONNECT_FAILED, "it was connecting to this process itself but did not arrive"),
         false);
  });
}

void StreamEndpoint::failed(Attempt &attempt, const Status &why) {
  const bool extra = attempt.index() > 0 && state_ == State::connected;
  drop_attempt(attempt);
  // Without an extra connection its share goes over the others; connection 0 tells how the peer is.
  if (peer_left_) return finish_if_over();
  if (extra) return;
  doom(why.with([](Failure &f) { f.code = DICOMM_CONNECT_FAILED; }), false);
}

uint32_t StreamEndpoint::admit(uint32_t index) const {
  if (index == 0) {
    switch (state_) {
      case State::connecting:
        return shared_.options.self.id < peer_ ? kVerdictYield : kVerdictAccept;
      case State::yielded:
        return kVerdictAccept;
      case State::connected:
      case State::doomed:
        return kVerdictBusy;
    }
  }
  const bool there = index < connections_.size() && connections_[index] != nullptr;
  const bool takes = state_ == State::connected && !initiator_ && index < kMaxSocketsPerPeer && !there;
  return takes ? kVerdictAccept : kVerdictBusy;
}

void StreamEndpoint::adopt(uint32_t index, UniqueFd fd) {
  if (index == 0) {
    attempts_.clear();
    initiator_ = false;
  }
  establish(index, std::move(fd));
}

void StreamEndpoint::establish(uint32_t index, UniqueFd fd) {
  if (connections_.size() <= index) connections_.resize(index + 1);
  Connection::Owner &connection_owner = *this;
  connections_[index] = shared_.make_connection(connection_owner, std::move(fd));
  Connection &connection = *connections_[index];
  if (const Status status = connection.open(); !status.ok()) return doom(status, false);
  if (index == 0) {
    shared_.reactor.cancel(yield_deadline_);
    state_ = State::connected;
    while (!control_.empty()) connection.enqueue(*control_.pop());
    while (!bulk_.empty()) connection.enqueue(*bulk_.pop());
    if (initiator_ && !leaving_)
      for (uint32_t i = 1; i < shared_.options.sockets_per_peer; ++i) attempt(i);
  }
  if (leaving_) connection.say_goodbye();
  connection.flush();
}

// ---- messages ----

Connection &StreamEndpoint::connection_for(Lane lane) {
  Connection *best = connections_[0].get();
  if (lane == Lane::control) return *best;
  bool extra = false;
  for (size_t i = 1; i < connections_.size(); ++i) {
    Connection *const other = connections_[i].get();
    if (other == nullptr || !other->is_open()) continue;
    if (!extra || other->queued_bytes() < best->queued_bytes()) best = other;
    extra = true;
  }
  return *best;
}

Sent StreamEndpoint::send(Outgoing &message) {
  if (state_ == State::connected) return connection_for(message.lane).send(message);
  message.progress = 0;
  (message.lane == Lane::control ? control_ : bulk_).push(message);
  return Sent::queued;
}

bool StreamEndpoint::cancel(Outgoing &message) {
  if (control_.remove(message) || bulk_.remove(message)) return true;
  for (const auto &connection : connections_) {
    if (connection == nullptr) continue;
    switch (connection->cancel(message)) {
      case Connection::Canceled::unsent:
        return true;
      case Connection::Canceled::partly:
        return false;
      case Connection::Canceled::unknown:
        break;
    }
  }
  return false;
}

void StreamEndpoint::revoke(Incoming &into) {
  for (const auto &connection : connections_)
    if (connection != nullptr) connection->revoke(into);
  into.data = nullptr;
}

Status StreamEndpoint::hand_over(int fd) {
  if (state_ == State::connected) return connections_[0]->hand_over(fd);
  return Status::make(DICOMM_CONNECT_FAILED, peer_name(), " is not connected");
}

UniqueFd StreamEndpoint::take_handed() {
  return state_ == State::connected ? connections_[0]->take_handed() : UniqueFd();
}

const char *StreamEndpoint::path() const {
  const char *of_connection = state_ == State::connected ? connections_[0]->path() : nullptr;
  return of_connection != nullptr ? of_connection : shared_.path;
}

std::string StreamEndpoint::peer_counters() const {
  return state_ == State::connected ? connections_[0]->peer_counters() : std::string();
}

bool StreamEndpoint::carries(const ChipMemory &chip) const {
  return state_ == State::connected && connections_[0]->carries(chip);
}

std::string StreamEndpoint::peer_name() const { return concat("process ", process_, " on ", host_); }

// ---- ending ----

void StreamEndpoint::doom(const Status &why, bool clean) {
  if (state_ == State::doomed) return;
  state_ = State::doomed;
  const Nanos waited = now() - started_;
  reason_ = why.with([&](Failure &f) {
    f.path = shared_.path;
    f.peer_host = host_;
    if (f.code == DICOMM_CONNECT_FAILED) f.waited_ns = waited;
    f.text = concat(peer_name(), ": ", f.text);
  });
  clean_ = clean;
  shared_.reactor.cancel(yield_deadline_);
  attempts_.clear();
  for (const auto &connection : connections_)
    if (connection != nullptr) connection->close();  // its functions may be running: destroyed with us
  owner_.doomed(*this);
}

void StreamEndpoint::ended(Connection &) {
  peer_left_ = true;
  finish_if_over();
}

// Connections that still deliver, or that the peer may have accepted and written to, come to their end first.
void StreamEndpoint::finish_if_over() {
  if (!attempts_.empty()) return;
  for (const auto &connection : connections_)
    if (connection != nullptr && connection->is_open()) return;
  doom(Status::make(DICOMM_PEER_LOST, "it has closed its context"), true);
}

void StreamEndpoint::say_goodbye() {
  if (leaving_ || state_ == State::doomed) return;
  leaving_ = true;
  std::erase_if(attempts_, [&](const auto &attempt) {
    const bool needed = attempt->index() == 0 && !(control_.empty() && bulk_.empty());
    return !needed && !attempt->proof_sent();
  });
  if (state_ != State::connected) {
    if (attempts_.empty() && control_.empty() && bulk_.empty())
      doom(Status::make(DICOMM_CANCELED, "this context was closed before it was needed"), true);
    return;
  }
  for (const auto &connection : connections_)
    if (connection != nullptr) connection->say_goodbye();
  if (peer_left_) finish_if_over();
}

bool StreamEndpoint::watch() {
  bool busy = false;
  for (size_t i = 0; i < connections_.size(); ++i)
    if (connections_[i] != nullptr && connections_[i]->watch()) busy = true;
  return busy;
}

void StreamEndpoint::after_fork() {
  for (const auto &attempt : attempts_) attempt->after_fork();
  for (const auto &connection : connections_)
    if (connection != nullptr) connection->after_fork();
}

}  // namespace dicomm
