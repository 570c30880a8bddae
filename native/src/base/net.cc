#include "base/net.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <charconv>
#include <cstring>

namespace dicomm {
namespace {

Status look_up(const std::string &host, uint16_t port, int flags, std::vector<SocketAddress> &out) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo *found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    const char *why = error == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(error);
    return Status::make(DICOMM_INVALID_ARGUMENT, "host '", host, "' cannot be resolved: ", why);
  }
  out.clear();
  for (const addrinfo *i = found; i != nullptr; i = i->ai_next) {
    if (i->ai_family != AF_INET && i->ai_family != AF_INET6) continue;
    SocketAddress &address = out.emplace_back();
    std::memcpy(&address.storage, i->ai_addr, i->ai_addrlen);
    address.length = i->ai_addrlen;
  }
  ::freeaddrinfo(found);
  if (out.empty()) return Status::make(DICOMM_INVALID_ARGUMENT, "host '", host, "' has no IP address");
  return {};
}

void set_option(int fd, int level, int option, int value) {
  ::setsockopt(fd, level, option, &value, sizeof(value));
}

}  // namespace

uint16_t SocketAddress::port() const {
  if (family() == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6 *>(&storage)->sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in *>(&storage)->sin_port);
}

void SocketAddress::set_port(uint16_t port) {
  if (family() == AF_INET6)
    reinterpret_cast<sockaddr_in6 *>(&storage)->sin6_port = htons(port);
  else
    reinterpret_cast<sockaddr_in *>(&storage)->sin_port = htons(port);
}

std::string SocketAddress::host() const {
  char text[NI_MAXHOST] = "?";
  ::getnameinfo(get(), length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  return text;
}

std::string SocketAddress::text() const { return join_host_port(host(), port()); }

std::string join_host_port(std::string_view host, uint16_t port) {
  return host.find(':') == std::string_view::npos ? concat(host, ":", port) : concat("[", host, "]:", port);
}

Status split_host_port(std::string_view text, std::string &host, uint16_t &port) {
  const auto wrong = [&] {
    return Status::make(DICOMM_INVALID_ARGUMENT, "'", text, "' is not HOST:PORT or [IPV6]:PORT");
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return wrong();
  std::string_view name = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  if (name.front() == '[' && name.back() == ']')
    name = name.substr(1, name.size() - 2);
  else if (name.find(':') != std::string_view::npos)
    return wrong();
  unsigned value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (name.empty() || error != std::errc() || end != digits.data() + digits.size() || value > 65535)
    return wrong();
  host = name;
  port = static_cast<uint16_t>(value);
  return {};
}

Status resolve(const std::string &host, uint16_t port, std::vector<SocketAddress> &out) {
  return look_up(host, port, 0, out);
}

Status parse_numeric(const std::string &host, uint16_t port, SocketAddress &out) {
  std::vector<SocketAddress> found;
  DICOMM_TRY(look_up(host, port, AI_NUMERICHOST, found));
  out = found.front();
  return {};
}

Status listen_on(SocketAddress &address, UniqueFd &out) {
  UniqueFd fd(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return Status::from_errno(errno, "no socket to listen on ", address.text());
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  // "::" means IPv6 only, so that binding does not depend on the machine's settings.
  if (address.family() == AF_INET6) set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
  if (::bind(fd.get(), address.get(), address.length) != 0 || ::listen(fd.get(), 1024) != 0)
    return Status::from_errno(errno, "cannot listen on ", address.text());
  address = local_address(fd.get());
  out = std::move(fd);
  return {};
}

SocketAddress local_address(int fd) {
  SocketAddress address;
  ::getsockname(fd, address.get(), &address.length);
  return address;
}

bool connected_to_itself(int fd) {
  const SocketAddress local = local_address(fd);
  SocketAddress peer;
  return ::getpeername(fd, peer.get(), &peer.length) == 0 && local.length == peer.length &&
         std::memcmp(&local.storage, &peer.storage, local.length) == 0;
}

void tune_socket(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

}  // namespace dicomm
