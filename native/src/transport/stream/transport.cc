#include "transport/stream/transport.h"

#include <algorithm>

namespace dicomm {

StreamTransport::StreamTransport(Reactor &reactor, Sink &sink, const char *path, TransportLimits limits,
                                 const StreamOptions &options)
    : shared_{reactor, sink, path, limits, options, {}, {}, false, {}},
      self_reference_(std::make_shared<StreamTransport *>(this)),
      listener_(shared_, *this) {
  shared_.options.sockets_per_peer = std::clamp(options.sockets_per_peer, 1u, kMaxSocketsPerPeer);
  shared_.watch = [this] { watch_later(); };
  shared_.make_connection = [this](Connection::Owner &owner, UniqueFd fd) {
    return connection(owner, std::move(fd));
  };
}

StreamTransport::~StreamTransport() {
  *self_reference_ = nullptr;
  shared_.reactor.cancel(watch_timer_);
}

bool StreamTransport::reaches(const PeerAddress &peer) const {
  SocketAddress ignored;
  return peer.id != shared_.options.self.id && locate(peer, ignored).ok();
}

std::string_view StreamTransport::line_of(const std::string &address, std::string_view transport) {
  const std::string prefix = concat(transport, " ");
  std::string_view rest = address;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    if (line.starts_with(prefix)) return line.substr(prefix.size());
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return {};
}

StreamEndpoint &StreamTransport::make_endpoint(const ContextId &peer, const std::string &host,
                                               uint64_t process) {
  StreamEndpoint::Owner &owner = *this;
  auto endpoint = std::make_unique<StreamEndpoint>(shared_, owner, peer, host, process);
  return *(endpoints_[peer] = std::move(endpoint));
}

Endpoint &StreamTransport::endpoint(const PeerAddress &peer) {
  if (const auto found = endpoints_.find(peer.id); found != endpoints_.end()) return *found->second;
  StreamEndpoint &endpoint = make_endpoint(peer.id, peer.host, peer.process);
  SocketAddress address;
  if (const Status status = locate(peer, address); !status.ok())
    endpoint.doom(status, false);
  else
    endpoint.connect_to(address, peer.key);
  return endpoint;
}

uint32_t StreamTransport::admit(const StreamHello &hello) {
  const ContextId &self = shared_.options.self.id;
  if (hello.target != self || hello.id == self) return kVerdictNotMe;
  const auto found = endpoints_.find(hello.id);
  if (found != endpoints_.end()) return found->second->admit(hello.index);
  return hello.index == 0 ? kVerdictAccept : kVerdictBusy;
}

void StreamTransport::adopt(const StreamHello &hello, UniqueFd fd) {
  const auto found = endpoints_.find(hello.id);
  StreamEndpoint &endpoint =
      found != endpoints_.end() ? *found->second : make_endpoint(hello.id, hello.host, hello.process);
  endpoint.adopt(hello.index, std::move(fd));
  if (leaving_) endpoint.say_goodbye();
}

// Endpoints are destroyed from a task of their own: their functions may be running now.
void StreamTransport::doomed(StreamEndpoint &) {
  if (bury_posted_) return;
  bury_posted_ = true;
  shared_.reactor.post([reference = self_reference_] {
    if (StreamTransport *transport = *reference) transport->bury();
  });
}

void StreamTransport::bury() {
  bury_posted_ = false;
  std::vector<std::unique_ptr<StreamEndpoint>> dead;
  for (auto i = endpoints_.begin(); i != endpoints_.end();) {
    if (i->second->state() != StreamEndpoint::State::doomed) {
      ++i;
      continue;
    }
    dead.push_back(std::move(i->second));
    i = endpoints_.erase(i);
  }
  for (const auto &endpoint : dead) shared_.sink.on_failed(*endpoint, endpoint->reason(), endpoint->clean());
}

bool StreamTransport::shutdown() {
  leaving_ = true;
  bool connecting = false;
  for (const auto &[id, endpoint] : endpoints_) {
    endpoint->say_goodbye();
    const auto state = endpoint->state();
    connecting |= state == StreamEndpoint::State::connecting || state == StreamEndpoint::State::yielded;
  }
  if (!connecting) listener_.close();  // a yielded endpoint's peer has still to come
  return endpoints_.empty();
}

void StreamTransport::after_fork() {
  listener_.after_fork();
  for (const auto &[id, endpoint] : endpoints_) endpoint->after_fork();
}

// Looks for hosts that have vanished, once a second while something is under way: an idle process is not
// woken.
void StreamTransport::watch_later() {
  shared_.watching = true;
  watch_timer_ = shared_.reactor.at(now() + kWatch, [this] { watch(); });
}

void StreamTransport::watch() {
  bool busy = false;
  for (const auto &[id, endpoint] : endpoints_) busy |= endpoint->watch();
  shared_.watching = false;
  if (busy) watch_later();
}

std::string StreamTransport::counters() const {
  const StreamCounters &c = shared_.counters;
  return concat("\"connections\": ", c.connections, ", \"strangers_dropped\": ", c.strangers_dropped,
                ", \"bytes_sent\": ", c.bytes_sent, ", \"bytes_received\": ", c.bytes_received,
                ", \"messages_sent\": ", c.messages_sent, ", \"messages_received\": ", c.messages_received);
}

}  // namespace dicomm
