// shm: messages between processes of one host through shared memory.
//
// One host means: one kernel and one network namespace, in which alone the listener's abstract name can be
// reached.
#pragma once

#include "transport/stream/transport.h"

namespace dicomm {

struct ShmOptions : StreamOptions {
  bool fetch = true;  // false: never read a peer's memory directly, as where the kernel forbids it
};

class ShmTransport final : public StreamTransport {
 public:
  ShmTransport(Reactor &reactor, Sink &sink, const ShmOptions &options);
  ~ShmTransport() override { clear(); }
  // NOT_SUPPORTED where the kernel has no memfd, or no name of this boot and namespace can be had.
  Status open();

  std::string address() const override;
  // The part of a PeerAddress::address that is equal for processes that reach each other: "BOOT-ID
  // NAMESPACE",
  // "" when there is none.
  static std::string_view place_of(const std::string &address);

 private:
  Status locate(const PeerAddress &peer, SocketAddress &out) const override;
  std::unique_ptr<Connection> connection(Connection::Owner &owner, UniqueFd fd) override;

  const bool fetch_;
  std::string place_;  // "BOOT-ID NAMESPACE"
  std::string name_;   // of the listener's abstract socket
};

}  // namespace dicomm
