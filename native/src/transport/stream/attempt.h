// One outgoing connection on its way: connect, handshake, verdict. Tries again after what time may mend.
#pragma once

#include <optional>

#include "base/net.h"
#include "transport/stream/shared.h"

namespace dicomm {

class Attempt final : public FdHandler {
 public:
  // Called as the attempt's last act: the owner may destroy it inside. Not called from start().
  class Owner {
   public:
    virtual void connected(Attempt &attempt, UniqueFd fd) = 0;
    virtual void yielded(Attempt &attempt) = 0;  // the peer's own attempt goes on instead
    virtual void failed(Attempt &attempt, const Status &why) = 0;

   protected:
    ~Owner() = default;
  };

  Attempt(StreamShared &shared, Owner &owner, const SocketAddress &address, const Key &key,
          const StreamHello &hello);
  ~Attempt();
  void start();
  void after_fork() { fd_.reset(); }
  uint32_t index() const { return hello_.index; }
  // The peer may have accepted already.
  bool proof_sent() const { return handshake_ && handshake_->proof_sent(); }

  void on_ready(uint32_t events) override;

 private:
  static constexpr Nanos kPause = 20 * kMillisecond;

  Status connect();
  Status advance();
  void conclude();
  void retry_or_fail(const Status &why);
  void close();

  StreamShared &shared_;
  Owner &owner_;
  const SocketAddress address_;
  const Key key_;
  const StreamHello hello_;
  const Nanos started_ = now();
  Reactor::Timer deadline_{};
  Reactor::Timer pause_{};
  UniqueFd fd_;
  std::optional<Handshake> handshake_;  // since the socket is connected
  Status last_;                         // why the latest try failed
};

}  // namespace dicomm
