#include "transport/shm/transport.h"

#include <errno.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>

#include "base/boot_id.h"
#include "transport/shm/connection.h"

namespace dicomm {
namespace {

// Large enough to make one system call per chunk cheap, small enough to overlap with what others do.
constexpr size_t kShmBulkChunk = size_t{1} << 20;

SocketAddress abstract(const std::string &name) {
  SocketAddress address;
  auto &un = reinterpret_cast<sockaddr_un &>(address.storage);
  un.sun_family = AF_UNIX;
  name.copy(un.sun_path + 1, sizeof(un.sun_path) - 1);  // a leading zero: no file
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

}  // namespace

ShmTransport::ShmTransport(Reactor &reactor, Sink &sink, const ShmOptions &options)
    : StreamTransport(reactor, sink, "shm", {kMaxShmPayload, kShmBulkChunk}, options), fetch_(options.fetch) {
  shared_.options.sockets_per_peer = 1;
}

Status ShmTransport::open() {
  const std::string boot = boot_id();
  char space[64] = "";
  const ssize_t n = ::readlink("/proc/self/ns/net", space, sizeof(space) - 1);
  if (boot.empty() || n <= 0) {
    return Status::make(DICOMM_NOT_SUPPORTED,
                        "/proc does not tell this boot and network namespace apart from others");
  }
  Segment trial;
  DICOMM_TRY(trial.create());
  place_ = boot + " " + std::string(space, static_cast<size_t>(n));
  std::array<std::byte, 16> random;
  random_bytes(random);
  name_ = "dicomm-";
  for (const std::byte b : random) {
    name_ += "0123456789abcdef"[std::to_integer<unsigned>(b) >> 4];
    name_ += "0123456789abcdef"[std::to_integer<unsigned>(b) & 15];
  }
  return listen(abstract(name_));
}

// "shm BOOT-ID NAMESPACE NAME"
std::string ShmTransport::address() const { return concat("shm ", place_, " ", name_); }

std::string_view ShmTransport::place_of(const std::string &address) {
  const std::string_view line = line_of(address, "shm");
  return line.substr(0, std::min(line.rfind(' '), line.size()));
}

Status ShmTransport::locate(const PeerAddress &peer, SocketAddress &out) const {
  if (place_of(peer.address) != place_) {
    return Status::make(DICOMM_CONNECT_FAILED, "it does not run on this host");
  }
  const std::string_view line = line_of(peer.address, shared_.path);
  out = abstract(std::string(line.substr(place_.size() + 1, 64)));
  return {};
}

std::unique_ptr<Connection> ShmTransport::connection(Connection::Owner &owner, UniqueFd fd) {
  return std::make_unique<ShmConnection>(shared_, owner, std::move(fd), fetch_);
}

}  // namespace dicomm
