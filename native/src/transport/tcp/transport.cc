#include "transport/tcp/transport.h"

#include <netinet/in.h>

#include <algorithm>
#include <charconv>

#include "transport/tcp/interface.h"

namespace dicomm {
namespace {

constexpr size_t kScratch = size_t{64} << 10;
constexpr std::string_view kPrefix = "tcp ";

// Our line of PeerAddress::address without the prefix; "" when there is none.
std::string_view line_of(const std::string &address) {
  std::string_view rest = address;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    if (line.starts_with(kPrefix)) return line.substr(kPrefix.size());
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return {};
}

}  // namespace

TcpTransport::TcpTransport(Reactor &reactor, Sink &sink, const TcpOptions &options)
    : shared_{reactor, sink, options, {}, std::vector<std::byte>(kScratch), false, [this] { watch_later(); }},
      self_reference_(std::make_shared<TcpTransport *>(this)),
      listener_(shared_, *this) {
  shared_.options.sockets_per_peer = std::clamp(options.sockets_per_peer, 1u, kMaxSocketsPerPeer);
}

TcpTransport::~TcpTransport() {
  *self_reference_ = nullptr;
  shared_.reactor.cancel(watch_timer_);
}

Status TcpTransport::open() {
  SocketAddress address;
  DICOMM_TRY(choose_address(shared_.options.interface, shared_.options.route_to, address));
  return listener_.open(address);
}

// "tcp HOST PORT". The scope of a link-local address means something on this machine only.
std::string TcpTransport::address() const {
  const std::string host = listener_.address().host();
  return concat(kPrefix, host.substr(0, host.find('%')), " ", listener_.address().port());
}

bool TcpTransport::reaches(const PeerAddress &peer) const {
  SocketAddress ignored;
  return peer.id != shared_.options.self.id && parse(peer, ignored).ok();
}

Status TcpTransport::parse(const PeerAddress &peer, SocketAddress &out) const {
  const std::string_view line = line_of(peer.address);
  const size_t space = line.find(' ');
  unsigned port = 0;
  if (space != std::string_view::npos)
    std::from_chars(line.data() + space + 1, line.data() + line.size(), port);
  if (port == 0 || port > 65535)
    return Status::make(DICOMM_CONNECT_FAILED, "its address '", peer.address,
                        "' has no line \"tcp HOST PORT\"");
  DICOMM_TRY(parse_numeric(std::string(line.substr(0, space)), static_cast<uint16_t>(port), out));
  if (out.family() == AF_INET6 && listener_.address().family() == AF_INET6) {
    auto &v6 = reinterpret_cast<sockaddr_in6 &>(out.storage);
    if (IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr))
      v6.sin6_scope_id = reinterpret_cast<const sockaddr_in6 &>(listener_.address().storage).sin6_scope_id;
  }
  return {};
}

TcpEndpoint &TcpTransport::make_endpoint(const ContextId &peer, const std::string &host, uint64_t process) {
  TcpEndpoint::Owner &owner = *this;
  auto endpoint = std::make_unique<TcpEndpoint>(shared_, owner, peer, host, process);
  return *(endpoints_[peer] = std::move(endpoint));
}

Endpoint &TcpTransport::endpoint(const PeerAddress &peer) {
  if (const auto found = endpoints_.find(peer.id); found != endpoints_.end()) return *found->second;
  TcpEndpoint &endpoint = make_endpoint(peer.id, peer.host, peer.process);
  SocketAddress address;
  if (const Status status = parse(peer, address); !status.ok())
    endpoint.doom(status, false);
  else
    endpoint.connect_to(address, peer.key);
  return endpoint;
}

uint32_t TcpTransport::admit(const TcpHello &hello) {
  const ContextId &self = shared_.options.self.id;
  if (hello.target != self || hello.id == self) return kVerdictNotMe;
  const auto found = endpoints_.find(hello.id);
  if (found != endpoints_.end()) return found->second->admit(hello.index);
  return hello.index == 0 ? kVerdictAccept : kVerdictBusy;
}

void TcpTransport::adopt(const TcpHello &hello, UniqueFd fd) {
  const auto found = endpoints_.find(hello.id);
  TcpEndpoint &endpoint =
      found != endpoints_.end() ? *found->second : make_endpoint(hello.id, hello.host, hello.process);
  endpoint.adopt(hello.index, std::move(fd));
  if (leaving_) endpoint.say_goodbye();
}

// Endpoints are destroyed from a task of their own: their functions may be running now.
void TcpTransport::doomed(TcpEndpoint &) {
  if (bury_posted_) return;
  bury_posted_ = true;
  shared_.reactor.post([reference = self_reference_] {
    if (TcpTransport *transport = *reference) transport->bury();
  });
}

void TcpTransport::bury() {
  bury_posted_ = false;
  std::vector<std::unique_ptr<TcpEndpoint>> dead;
  for (auto i = endpoints_.begin(); i != endpoints_.end();) {
    if (i->second->state() != TcpEndpoint::State::doomed) {
      ++i;
      continue;
    }
    dead.push_back(std::move(i->second));
    i = endpoints_.erase(i);
  }
  for (const auto &endpoint : dead) shared_.sink.on_failed(*endpoint, endpoint->reason(), endpoint->clean());
}

bool TcpTransport::shutdown() {
  leaving_ = true;
  bool connecting = false;
  for (const auto &[id, endpoint] : endpoints_) {
    endpoint->say_goodbye();
    const auto state = endpoint->state();
    connecting |= state == TcpEndpoint::State::connecting || state == TcpEndpoint::State::yielded;
  }
  if (!connecting) listener_.close();  // a yielded endpoint's peer has still to come
  return endpoints_.empty();
}

void TcpTransport::after_fork() {
  listener_.after_fork();
  for (const auto &[id, endpoint] : endpoints_) endpoint->after_fork();
}

// Looks for hosts that have vanished, once a second while something is under way: an idle process is not
// woken.
void TcpTransport::watch_later() {
  shared_.watching = true;
  watch_timer_ = shared_.reactor.at(now() + kWatch, [this] { watch(); });
}

void TcpTransport::watch() {
  bool busy = false;
  for (const auto &[id, endpoint] : endpoints_) busy |= endpoint->watch();
  shared_.watching = false;
  if (busy) watch_later();
}

std::string TcpTransport::counters() const {
  const TcpCounters &c = shared_.counters;
  return concat("\"connections\": ", c.connections, ", \"strangers_dropped\": ", c.strangers_dropped,
                ", \"bytes_sent\": ", c.bytes_sent, ", \"bytes_received\": ", c.bytes_received,
                ", \"messages_sent\": ", c.messages_sent, ", \"messages_received\": ", c.messages_received);
}

}  // namespace dicomm
