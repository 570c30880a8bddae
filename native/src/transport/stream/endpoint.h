// One peer over a stream transport: its connections, and what waits for them.
//
// Connection 0 carries control messages in order. With several sockets per peer, the side that initiated
// connection 0 opens the others once it stands, and bulk messages go to the least loaded of those.
//
// Both sides may connect at once. The attempt of the smaller id wins:
//
//   our state when the peer's    our id smaller         our id larger
//   hello for connection 0 comes
//   (no endpoint)                accept                 accept
//   connecting                   yield, ours goes on    accept, drop our attempt
//   yielded                      accept                 accept
//   connected, doomed            busy                   busy
//
//   our attempt is answered: accept -> connected; yield -> yielded, the peer's hello will come; busy -> the
//   peer clears away an older connection, try again.
//
// So exactly one connection 0 comes to stand, and messages leave the queue only for one that stands.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/stream/attempt.h"
#include "transport/stream/queue.h"

namespace dicomm {

class StreamEndpoint final : public Endpoint, private Connection::Owner, private Attempt::Owner {
 public:
  enum class State { connecting, yielded, connected, doomed };

  // doomed(): the endpoint has failed or ended; its owner tells the sink later and destroys it then.
  class Owner {
   public:
    virtual void doomed(StreamEndpoint &endpoint) = 0;

   protected:
    ~Owner() = default;
  };

  StreamEndpoint(StreamShared &shared, Owner &owner, const ContextId &peer, std::string host,
                 uint64_t process);
  ~StreamEndpoint() override;

  void connect_to(const SocketAddress &address, const Key &key);
  void doom(const Status &why, bool clean);
  // A hello for connection `index` that the listener has proven; see the table above.
  uint32_t admit(uint32_t index) const;
  void adopt(uint32_t index, UniqueFd fd);
  void say_goodbye();
  bool watch();
  void after_fork();

  State state() const { return state_; }
  const Status &reason() const { return reason_; }
  bool clean() const { return clean_; }

  const ContextId &peer() const override { return peer_; }
  TransportLimits limits() const override { return shared_.limits; }
  const char *path() const override;
  std::string peer_counters() const override;
  bool carries(const ChipMemory &chip) const override;
  Sent send(Outgoing &message) override;
  bool cancel(Outgoing &message) override;
  void revoke(Incoming &into) override;
  Status hand_over(int fd) override;
  UniqueFd take_handed() override;

 private:
  Endpoint &endpoint() override { return *this; }
  std::string peer_name() const override;
  void ended(Connection &connection) override;
  void broke(const Status &why) override { doom(why, false); }
  void connected(Attempt &attempt, UniqueFd fd) override;
  void yielded(Attempt &attempt) override;
  void failed(Attempt &attempt, const Status &why) override;

  void attempt(uint32_t index);
  void drop_attempt(const Attempt &attempt);
  void establish(uint32_t index, UniqueFd fd);
  Connection &connection_for(Lane lane);
  void finish_if_over();

  StreamShared &shared_;
  Owner &owner_;
  const ContextId peer_;
  const std::string host_;
  const uint64_t process_;
  SocketAddress address_;
  Key key_{};
  bool initiator_ = false;  // of connection 0
  State state_ = State::connecting;
  Nanos started_ = now();
  Reactor::Timer yield_deadline_{};
  std::vector<std::unique_ptr<Attempt>> attempts_;
  std::vector<std::unique_ptr<Connection>> connections_;  // by index; null: not there yet
  MessageQueue control_;                                  // sent before there was a connection
  MessageQueue bulk_;
  bool leaving_ = false;
  bool peer_left_ = false;
  Status reason_;
  bool clean_ = false;
};

}  // namespace dicomm
