#include "store/tcp_server.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

#include "base/thread.h"

namespace dicomm {
namespace {

constexpr Nanos kHandshakeTimeout = 5 * kSecond;
// A stranger this old makes room for the next one when there are too many.
constexpr Nanos kStrangerGrace = 250 * kMillisecond;
constexpr Nanos kDescriptorPause = 100 * kMillisecond;

Bytes bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte *>(text.data()), text.size()};
}

}  // namespace

struct TcpStoreServer::Client {
  Client(int socket, Bytes secret, Nanos when)
      : fd(socket), handshake(Handshake::server(Service::store, secret)), since(when) {}

  UniqueFd fd;
  Handshake handshake;
  Nanos since;
  bool proven = false;
  uint32_t events = EPOLLIN;
  Clients::iterator self;
  StoreRequest head{};
  size_t head_read = 0;
  std::vector<std::byte> body;  // key and value
  size_t body_read = 0;
  std::vector<std::byte> out;
  size_t written = 0;
  std::string waiting_for;  // the key of a get; "": none
  uint64_t waiting_id = 0;
};

TcpStoreServer::TcpStoreServer() = default;

TcpStoreServer::~TcpStoreServer() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  while (::write(stop_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
  }
  thread_.join();
}

Status TcpStoreServer::start(SocketAddress address, const std::vector<std::byte> &secret) {
  address_ = address;
  secret_ = secret;
  DICOMM_TRY(listen_on(address_, listener_));
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  stop_.reset(::eventfd(0, EFD_CLOEXEC));
  epoll_event listening{EPOLLIN, {.ptr = &listener_}};
  epoll_event stopping{EPOLLIN, {.ptr = &stop_}};
  if (!epoll_.valid() || !stop_.valid() ||
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener_.get(), &listening) != 0 ||
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, stop_.get(), &stopping) != 0)
    return Status::from_errno(errno, "the store cannot watch its sockets");
  thread_ = start_thread("dicomm-store", [this] { run(); });
  return {};
}

void TcpStoreServer::run() {
  std::array<epoll_event, 64> events;
  for (;;) {
    const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), next_timeout());
    bool accepting = false;
    for (int i = 0; i < count; ++i) {
      void *const what = events[i].data.ptr;
      if (what == &stop_) return;
      if (what == &listener_) {
        accepting = true;  // last: it may drop strangers that have an event here
        continue;
      }
      const auto client = static_cast<Client *>(what)->self;
      if (!serve(client)) drop(client);
    }
    expire_strangers();
    if (accepting || (accept_again_ != 0 && now() >= accept_again_)) accept_clients();
  }
}

int TcpStoreServer::next_timeout() const {
  Nanos next = accept_again_ == 0 ? kNever : accept_again_;
  if (!strangers_.empty()) next = std::min(next, strangers_.front().since + kHandshakeTimeout);
  if (next == kNever) return -1;
  return static_cast<int>(std::max<Nanos>(0, next - now()) / kMillisecond + 1);
}

void TcpStoreServer::expire_strangers() {
  while (!strangers_.empty() && now() >= strangers_.front().since + kHandshakeTimeout)
    drop(strangers_.begin());
}

void TcpStoreServer::pause_accepting(Nanos until) {
  accept_again_ = until;
  epoll_event event{until == 0 ? EPOLLIN : 0u, {.ptr = &listener_}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), &event);
}

void TcpStoreServer::accept_clients() {
  if (accept_again_ != 0) pause_accepting(0);
  for (;;) {
    if (strangers_.size() >= kMaxStrangers) {
      const Nanos old_enough = strangers_.front().since + kStrangerGrace;
      if (now() < old_enough) return pause_accepting(old_enough);
      drop(strangers_.begin());
    }
    const int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EAGAIN) pause_accepting(now() + kDescriptorPause);  // out of descriptors or memory
      return;
    }
    tune_socket(fd);
    Client &client = strangers_.emplace_back(fd, secret_, now());
    client.self = std::prev(strangers_.end());
    epoll_event event{EPOLLIN, {.ptr = &client}};
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) drop(client.self);
  }
}

void TcpStoreServer::drop(Clients::iterator client) {
  const auto [first, last] = waiting_.equal_range(client->waiting_for);
  for (auto i = first; i != last; ++i) {
    if (i->second != &*client) continue;
    waiting_.erase(i);
    break;
  }
  (client->proven ? clients_ : strangers_).erase(client);
  if (accept_again_ != 0) accept_again_ = now();  // there is room, or a descriptor
}

bool TcpStoreServer::serve(Clients::iterator client) {
  if (!client->proven && !greet(client)) return false;
  if (!client->proven) return true;
  return flush(*client) && (!client->out.empty() || read_requests(client));
}

bool TcpStoreServer::greet(Clients::iterator client) {
  Handshake &handshake = client->handshake;
  if (!pump(handshake, client->fd.get()).ok()) return false;
  if (handshake.proven()) {
    handshake.answer(clients_.size() < kMaxClients ? kVerdictAccept : 1);
    if (!pump(handshake, client->fd.get()).ok()) return false;
  }
  if (!handshake.done()) return true;
  if (handshake.verdict() != kVerdictAccept) return false;
  client->proven = true;
  clients_.splice(clients_.end(), strangers_, client);
  if (accept_again_ != 0) accept_again_ = now();
  return true;
}

// Requests are read one at a time, until there is nothing to read or a reply is stuck.
bool TcpStoreServer::read_requests(Clients::iterator client) {
  while (client->out.empty()) {
    std::span<std::byte> into =
        std::as_writable_bytes(std::span(&client->head, 1)).subspan(client->head_read);
    const bool in_body = into.empty();
    if (in_body) into = std::span(client->body).subspan(client->body_read);
    const ssize_t n = ::recv(client->fd.get(), into.data(), into.size(), 0);
    if (n == 0) return false;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    (in_body ? client->body_read : client->head_read) += static_cast<size_t>(n);
    if (client->head_read < sizeof(StoreRequest)) continue;
    if (!in_body && !begin_request(*client)) return false;
    if (client->body_read < client->body.size()) continue;
    carry_out(*client);
    client->head_read = 0;
    client->body = {};
  }
  return true;
}

bool TcpStoreServer::begin_request(Client &client) {
  const StoreRequest &head = client.head;
  if (head.key_bytes == 0 || head.key_bytes > kMaxKeyBytes || head.value_bytes > kMaxValueBytes) return false;
  client.body.resize(head.key_bytes + head.value_bytes);
  client.body_read = 0;
  return true;
}

void TcpStoreServer::carry_out(Client &client) {
  if (!client.waiting_for.empty()) {  // withdrawn by this request
    const auto [first, last] = waiting_.equal_range(client.waiting_for);
    waiting_.erase(std::find_if(first, last, [&](const auto &entry) { return entry.second == &client; }));
    client.waiting_for.clear();
  }
  const StoreRequest head = client.head;
  std::string key(reinterpret_cast<const char *>(client.body.data()), head.key_bytes);
  std::vector<std::byte> value(client.body.begin() + head.key_bytes, client.body.end());
  const auto found = values_.find(key);
  switch (head.op) {
    case StoreOp::set:
      return store(client, std::move(key), std::move(value), {});
    case StoreOp::get:
      if (found != values_.end()) return reply(client, head.id, DICOMM_OK, *found->second);
      client.waiting_for = key;
      client.waiting_id = head.id;
      waiting_.emplace(std::move(key), &client);
      return;
    case StoreOp::check: {
      const std::byte exists{found != values_.end()};
      return reply(client, head.id, DICOMM_OK, {&exists, 1});
    }
    case StoreOp::add: {
      int64_t sum = 0, delta = 0;
      if (found != values_.end()) {
        const char *text = reinterpret_cast<const char *>(found->second->data());
        const char *end = text + found->second->size();
        if (const auto parsed = std::from_chars(text, end, sum);
            parsed.ec != std::errc() || parsed.ptr != end)
          return reply(client, head.id, DICOMM_INVALID_ARGUMENT,
                       bytes_of("the value is not a decimal number"));
      }
      if (value.size() != sizeof(delta))
        return reply(client, head.id, DICOMM_INVALID_ARGUMENT, bytes_of("add needs a number"));
      std::memcpy(&delta, value.data(), sizeof(delta));
      if (__builtin_add_overflow(sum, delta, &sum))
        return reply(client, head.id, DICOMM_INVALID_ARGUMENT, bytes_of("the sum does not fit into 64 bits"));
      const std::string decimal = std::to_string(sum);
      const Bytes digits = bytes_of(decimal);
      return store(client, std::move(key), {digits.begin(), digits.end()}, std::as_bytes(std::span(&sum, 1)));
    }
  }
  reply(client, head.id, DICOMM_PROTOCOL, bytes_of("the store does not know this operation"));
}

// Sets the value, answers the client, then everybody who waits for the key.
void TcpStoreServer::store(Client &client, std::string key, std::vector<std::byte> value,
                           std::span<const std::byte> answer) {
  const auto found = values_.find(key);
  const size_t freed = found == values_.end() ? 0 : key.size() + found->second->size();
  const size_t bytes = bytes_ - freed + key.size() + value.size();
  if (bytes > kMaxBytes || (freed == 0 && values_.size() >= kMaxKeys))
    return reply(client, client.head.id, DICOMM_NO_MEMORY, bytes_of("the store is full"));
  bytes_ = bytes;
  const Value shared = std::make_shared<const std::vector<std::byte>>(std::move(value));
  reply(client, client.head.id, DICOMM_OK, answer);
  for (auto waiting = waiting_.extract(key); !waiting.empty(); waiting = waiting_.extract(key)) {
    Client &waiter = *waiting.mapped();
    waiter.waiting_for.clear();
    reply(waiter, waiter.waiting_id, DICOMM_OK, *shared);
  }
  values_.insert_or_assign(std::move(key), shared);
}

void TcpStoreServer::reply(Client &client, uint64_t id, dicomm_status status,
                           std::span<const std::byte> bytes) {
  const StoreReply head{static_cast<uint32_t>(status), 0, bytes.size(), id};
  const Bytes head_bytes = std::as_bytes(std::span(&head, 1));
  client.out.assign(head_bytes.begin(), head_bytes.end());
  client.out.insert(client.out.end(), bytes.begin(), bytes.end());
  client.written = 0;
  flush(client);  // should the client be gone, its own event says so
}

bool TcpStoreServer::flush(Client &client) {
  while (client.written < client.out.size()) {
    const Bytes rest = Bytes(client.out).subspan(client.written);
    const ssize_t n = ::send(client.fd.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      client.written += static_cast<size_t>(n);
    } else if (errno != EINTR) {
      if (errno != EAGAIN) return false;
      break;
    }
  }
  if (client.written == client.out.size()) client.out.clear();
  const uint32_t wanted = client.out.empty() ? EPOLLIN : EPOLLOUT;
  if (wanted == client.events) return true;
  client.events = wanted;
  epoll_event event{wanted, {.ptr = &client}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, client.fd.get(), &event);
  return true;
}

}  // namespace dicomm
