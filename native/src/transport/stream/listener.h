// The listening socket, and the strangers at it: who connected and has not proven to know the key yet.
//
// At most kMaxStrangers of them are heard at once. When there are more, the oldest makes room as soon as it
// has had kGrace; until then new connections wait in the kernel. Whoever fails is dropped and counted.
#pragma once

#include <list>

#include "base/net.h"
#include "transport/stream/shared.h"

namespace dicomm {

class Listener final : public FdHandler {
 public:
  static constexpr size_t kMaxStrangers = 64;

  class Owner {
   public:
    // The verdict for a proven peer; changes nothing. If it is accept, adopt follows when the peer has been
    // told.
    virtual uint32_t admit(const StreamHello &hello) = 0;
    virtual void adopt(const StreamHello &hello, UniqueFd fd) = 0;

   protected:
    ~Owner() = default;
  };

  Listener(StreamShared &shared, Owner &owner);
  ~Listener();
  Status open(SocketAddress address);
  const SocketAddress &address() const { return address_; }
  void close();
  void after_fork();

  void on_ready(uint32_t events) override;

 private:
  class Stranger;
  using Strangers = std::list<Stranger>;
  static constexpr Nanos kGrace = 250 * kMillisecond;
  static constexpr Nanos kDescriptorPause = 100 * kMillisecond;

  void pause(Nanos until);
  void resume();
  bool make_room();
  void drop(Stranger &stranger);
  void remove(Stranger &stranger);

  StreamShared &shared_;
  Owner &owner_;
  SocketAddress address_;
  UniqueFd fd_;
  Reactor::Timer resume_{};
  bool paused_ = false;
  Strangers strangers_;  // oldest first
};

}  // namespace dicomm
