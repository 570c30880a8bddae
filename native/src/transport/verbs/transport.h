// rdma: messages between hosts over the queue pairs of RDMA cards, or, while those do not work, over the
// socket on which two processes met. InfiniBand, RoCE v1 and v2; several ports together.
//
// Not here: XRC, dynamically connected or unreliable queue pairs, and connections made through a connection
// manager.
#pragma once

#include "transport/stream/transport.h"
#include "transport/verbs/connection.h"

namespace dicomm {

struct VerbsOptions : StreamOptions {
  std::string interface = {};
  std::string route_to = {};
  VerbsSettings settings = {};
  std::function<void(const std::string &)> log = {};           // takes one line
  std::function<std::string(const ContextId &)> name_of = {};  // as TransportOptions::name_of
};

class VerbsTransport final : public StreamTransport {
 public:
  VerbsTransport(Reactor &reactor, Sink &sink, const VerbsOptions &options);
  ~VerbsTransport() override;
  // NOT_SUPPORTED says why no port can be used.
  Status open();

  std::string address() const override;
  std::string counters() const override;
  void after_fork() override;
  void meet(ChipMemory &chip) override;

 private:
  class PortHandler;
  class CacheHandler;

  Status locate(const PeerAddress &peer, SocketAddress &out) const override;
  std::unique_ptr<Connection> connection(Connection::Owner &owner, UniqueFd fd) override;

  const std::string interface_, route_to_;
  ibv::Gid own_{};  // of the address at which this process listens
  VerbsShared verbs_;
  std::vector<std::unique_ptr<PortHandler>> handlers_;
  std::unique_ptr<CacheHandler> cache_handler_;
};

}  // namespace dicomm
