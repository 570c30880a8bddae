// StreamTransport: what tcp and shm have in common: one listener per Context, endpoints by peer, meeting and
// parting.
//
// Must not be destroyed from inside a Sink callback.
#pragma once

#include <map>
#include <memory>

#include "transport/stream/endpoint.h"
#include "transport/stream/listener.h"

namespace dicomm {

class StreamTransport : public Transport, private StreamEndpoint::Owner, private Listener::Owner {
 public:
  // The line of an address that begins with "PATH ", without that; "" when there is none.
  static std::string_view line_of(const std::string &address, std::string_view transport);
  const char *name() const override { return shared_.path; }
  TransportLimits limits() const override { return shared_.limits; }
  bool reaches(const PeerAddress &peer) const override;
  Endpoint &endpoint(const PeerAddress &peer) override;
  bool shutdown() override;
  void after_fork() override;
  std::string counters() const override;

 protected:
  StreamTransport(Reactor &reactor, Sink &sink, const char *path, TransportLimits limits,
                  const StreamOptions &options);
  ~StreamTransport() override;
  Status listen(const SocketAddress &address) { return listener_.open(address); }
  const SocketAddress &listening() const { return listener_.address(); }
  // Destroys the endpoints; derived classes call it first thing in their destructors.
  void clear() { endpoints_.clear(); }

  // Where the peer listens, by its PeerAddress::address. CONNECT_FAILED: it is not for this transport.
  virtual Status locate(const PeerAddress &peer, SocketAddress &out) const = 0;
  virtual std::unique_ptr<Connection> connection(Connection::Owner &owner, UniqueFd fd) = 0;

  StreamShared shared_;

 private:
  static constexpr Nanos kWatch = kSecond;

  void doomed(StreamEndpoint &endpoint) override;
  uint32_t admit(const StreamHello &hello) override;
  void adopt(const StreamHello &hello, UniqueFd fd) override;
  StreamEndpoint &make_endpoint(const ContextId &peer, const std::string &host, uint64_t process);
  void bury();
  void watch_later();
  void watch();

  // Tasks posted to the reactor may outlive us: they hold this and look whether it is still ours.
  std::shared_ptr<StreamTransport *> self_reference_;
  Listener listener_;
  std::map<ContextId, std::unique_ptr<StreamEndpoint>> endpoints_;
  bool bury_posted_ = false;
  bool leaving_ = false;
  Reactor::Timer watch_timer_{};
};

}  // namespace dicomm
