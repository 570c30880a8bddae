#include "store/tcp_client.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "base/handshake.h"

namespace dicomm {
namespace {

constexpr Nanos kRetry = 20 * kMillisecond;
constexpr Nanos kMaxRetry = 500 * kMillisecond;
// An address that swallows packets must not use up the time of the next one.
constexpr Nanos kAttempt = 5 * kSecond;

void sleep_until(Nanos when) {
  const timespec t{static_cast<time_t>(when / kSecond), static_cast<long>(when % kSecond)};
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr) == EINTR) {
  }
}

Bytes bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte *>(text.data()), text.size()};
}

}  // namespace

TcpStoreClient::TcpStoreClient(std::string host, uint16_t port, StoreOptions options)
    : host_(std::move(host)), port_(port), options_(std::move(options)) {}

Status TcpStoreClient::open() { return connect(deadline_after(options_.timeout)); }

// Retries until the deadline what waiting may mend: see connect_once.
Status TcpStoreClient::connect(Nanos deadline) {
  const Nanos start = now();
  Status last;
  bool hopeless = false;
  for (Nanos pause = kRetry; !hopeless; pause = std::min(2 * pause, kMaxRetry)) {
    std::vector<SocketAddress> addresses;
    last = resolve(host_, port_, addresses);
    for (const SocketAddress &address : addresses) {
      last = connect_once(address, std::min(deadline, deadline_after(kAttempt)));
      if (last.ok()) return {};
      hopeless = last.failure()->foreign_domain.empty();
      if (hopeless) break;
    }
    const Nanos left = deadline - now();
    if (left <= 0) break;
    if (!hopeless) sleep_until(now() + std::min(pause, left));
  }
  fd_.reset();
  const Nanos waited = now() - start;
  return last.with([&](Failure &f) {
    f.code = DICOMM_CONNECT_FAILED;
    f.text = concat("no connection to the ", name(), " after ", seconds(waited), " s: ", f.text);
    f.peer_host = host_;
    f.waited_ns = waited;
  });
}

// A failure without foreign code is one that waiting does not mend.
Status TcpStoreClient::connect_once(const SocketAddress &address, Nanos deadline) {
  fd_.reset(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd_.valid()) return Status::from_errno(errno, "no socket");
  if (::connect(fd_.get(), address.get(), address.length) != 0) {
    if (errno != EINPROGRESS) return Status::from_errno(errno, address.text());
    if (!wait_for(POLLOUT, deadline).ok()) return Status::from_errno(ETIMEDOUT, address.text());
    int error = 0;
    socklen_t length = sizeof(error);
    ::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return Status::from_errno(error, address.text());
  }
  if (connected_to_itself(fd_.get())) return Status::from_errno(ECONNREFUSED, address.text());
  tune_socket(fd_.get());
  Handshake handshake = Handshake::client(Service::store, options_.secret, Hello{});
  while (!handshake.done()) {
    DICOMM_TRY(pump(handshake, fd_.get()));
    if (handshake.done()) break;
    const short events = handshake.output().empty() ? POLLIN : POLLOUT;
    if (!wait_for(events, deadline).ok()) return Status::from_errno(ETIMEDOUT, "the server does not answer");
  }
  if (handshake.verdict() != kVerdictAccept)
    return Status::make(DICOMM_CONNECT_FAILED, "the server has as many clients as it can serve");
  return {};
}

Status TcpStoreClient::wait_for(short events, Nanos deadline) {
  for (;;) {
    const Nanos left = std::max<Nanos>(0, deadline == kNever ? kNever : deadline - now());
    const Nanos slice = std::min(left, kSecond);
    pollfd p{fd_.get(), events, 0};
    const int n = ::poll(&p, 1, static_cast<int>((slice + kMillisecond - 1) / kMillisecond));
    if (n > 0) return {};
    if (n < 0 && errno != EINTR) return Status::from_errno(errno, "poll");
    if (left == 0) return Status::make(DICOMM_TIMED_OUT, "no answer in time");
  }
}

Status TcpStoreClient::write_all(std::span<const std::byte> bytes, Nanos deadline) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n >= 0)
      bytes = bytes.subspan(static_cast<size_t>(n));
    else if (errno == EAGAIN)
      DICOMM_TRY(wait_for(POLLOUT, deadline));
    else if (errno != EINTR)
      return Status::system_failure(DICOMM_PEER_LOST, errno, "the connection broke");
  }
  return {};
}

Status TcpStoreClient::read_all(std::span<std::byte> bytes, Nanos deadline) {
  while (!bytes.empty()) {
    const ssize_t n = ::recv(fd_.get(), bytes.data(), bytes.size(), 0);
    if (n > 0)
      bytes = bytes.subspan(static_cast<size_t>(n));
    else if (n == 0)
      return Status::make(DICOMM_PEER_LOST, "the server hung up: its process has ended or closed the store");
    else if (errno == EAGAIN)
      DICOMM_TRY(wait_for(POLLIN, deadline));
    else if (errno != EINTR)
      return Status::system_failure(DICOMM_PEER_LOST, errno, "the connection broke");
  }
  return {};
}

// in_step: the next request may use the same connection.
Status TcpStoreClient::exchange(const StoreRequest &head, std::string_view key,
                                std::span<const std::byte> value, Nanos deadline,
                                std::vector<std::byte> &reply, bool &in_step) {
  std::vector<std::byte> message(sizeof(head));
  std::memcpy(message.data(), &head, sizeof(head));
  message.insert(message.end(), bytes_of(key).begin(), bytes_of(key).end());
  message.insert(message.end(), value.begin(), value.end());
  DICOMM_TRY(write_all(message, deadline));
  for (;;) {
    if (Status waiting = wait_for(POLLIN, deadline); !waiting.ok()) {
      in_step = true;
      return waiting;
    }
    StoreReply answer;
    DICOMM_TRY(read_all(std::as_writable_bytes(std::span(&answer, 1)), deadline));
    if (answer.bytes > kMaxValueBytes)
      return Status::make(DICOMM_PROTOCOL, "the server announced a reply of ", answer.bytes, " bytes");
    reply.resize(answer.bytes);
    DICOMM_TRY(read_all(reply, deadline));
    if (answer.id != head.id) continue;  // to a request that timed out before
    in_step = true;
    if (answer.status == DICOMM_OK) return {};
    const std::string_view text(reinterpret_cast<const char *>(reply.data()), reply.size());
    return Status::make(static_cast<dicomm_status>(answer.status), text);
  }
}

Status TcpStoreClient::request(StoreOp op, std::string_view key, std::span<const std::byte> value,
                               Nanos deadline, std::vector<std::byte> &reply) {
  DICOMM_TRY(check_entry(key, value.size()));
  const Nanos start = now();
  if (!fd_.valid()) DICOMM_TRY(connect(deadline));
  const StoreRequest head{op, static_cast<uint32_t>(key.size()), value.size(), ++id_};
  bool in_step = false;
  const Status status = exchange(head, key, value, deadline, reply, in_step);
  if (!in_step) fd_.reset();
  const Nanos waited = now() - start;
  return status.with([&](Failure &f) {
    f.text = concat(name(), ", key '", key, "', after ", seconds(waited), " s: ", f.text);
    f.peer_host = host_;
    f.waited_ns = waited;
  });
}

Status TcpStoreClient::set(std::string_view key, std::span<const std::byte> value) {
  std::vector<std::byte> reply;
  return request(StoreOp::set, key, value, answer_deadline(options_.timeout), reply);
}

Status TcpStoreClient::get(std::string_view key, std::vector<std::byte> &value, Nanos deadline) {
  std::vector<std::byte> reply;
  DICOMM_TRY(request(StoreOp::get, key, {}, deadline, reply));
  value = std::move(reply);
  return {};
}

Status TcpStoreClient::check(std::string_view key, bool &exists) {
  std::vector<std::byte> reply;
  DICOMM_TRY(request(StoreOp::check, key, {}, answer_deadline(options_.timeout), reply));
  exists = reply.size() == 1 && reply[0] != std::byte{0};
  return {};
}

Status TcpStoreClient::add(std::string_view key, int64_t delta, int64_t &result) {
  std::vector<std::byte> reply;
  DICOMM_TRY(request(StoreOp::add, key, std::as_bytes(std::span(&delta, 1)),
                     answer_deadline(options_.timeout), reply));
  if (reply.size() != sizeof(result))
    return Status::make(DICOMM_PROTOCOL, name(), ": a sum of the wrong size");
  std::memcpy(&result, reply.data(), sizeof(result));
  return {};
}

}  // namespace dicomm
