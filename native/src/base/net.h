// Socket addresses and listening sockets: what the store and the tcp transport share.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"

namespace dicomm {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = sizeof(sockaddr_storage);

  const sockaddr *get() const { return reinterpret_cast<const sockaddr *>(&storage); }
  sockaddr *get() { return reinterpret_cast<sockaddr *>(&storage); }
  int family() const { return storage.ss_family; }
  uint16_t port() const;
  void set_port(uint16_t port);
  std::string host() const;  // numeric, with the scope of a link-local address: "fe80::1%eth0"
  std::string text() const;  // "192.0.2.1:80", "[::1]:80"
};

// "HOST:PORT" or "[IPV6]:PORT".
Status split_host_port(std::string_view text, std::string &host, uint16_t &port);
std::string join_host_port(std::string_view host, uint16_t port);

// Name or numeric address -> at least one address. Asks the resolver, which may block for its own time-outs.
Status resolve(const std::string &host, uint16_t port, std::vector<SocketAddress> &out);
// Numeric only; never blocks.
Status parse_numeric(const std::string &host, uint16_t port, SocketAddress &out);

// A non-blocking, close-on-exec stream socket listening on exactly this address; a port of 0 is replaced by
// the chosen one.
Status listen_on(SocketAddress &address, UniqueFd &out);

SocketAddress local_address(int fd);
// A connect to a port of this machine where nobody listens may, by chance, be given that very port and meet
// itself.
bool connected_to_itself(int fd);

// Small messages leave at once; an idle connection whose peer's host vanished fails after about 4 s.
void tune_socket(int fd);

}  // namespace dicomm
