// Messenger: moves tagged messages between ranks of communicators over the transports' endpoints.
//
// Eager: messages up to eager_bytes leave at once; the receiver keeps them until asked for. So that a
// fast sender cannot fill a slow receiver's memory, a sender has at most kEagerWindow bytes of eager messages
// unconsumed per peer; beyond that, and for longer messages, rendezvous: the sender offers (rts), the
// receiver asks (cts) once a receive fits, and the bytes go straight into its buffer in chunks (data).
//
// One Messenger per Context. Engine lock held throughout; callbacks come from inside Reactor::dispatch.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "p2p/channel.h"
#include "p2p/transfer.h"
#include "transport/registry.h"

namespace dicomm {

// How a rank's part in a channel has ended, as the others hear it: bye, or fail and why.
struct Farewell {
  Wire wire;
  std::string text;
};

// One peer Context, whatever communicators it shares with us.
struct Link {
  PeerAddress address;
  Endpoint *endpoint = nullptr;  // null: gone
  Status gone;                   // why
  bool left = false;             // gone, but said goodbye
  uint64_t eager_outstanding = 0;
  uint64_t eager_consumed = 0;                        // not yet credited to the peer
  std::unordered_map<uint64_t, SendTask *> offers;    // by our id
  std::unordered_map<uint64_t, RecvTask *> receives;  // by our id
  std::list<std::unique_ptr<Packet>> control;         // queued control messages
  uint64_t messages_sent = 0, bytes_sent = 0, messages_received = 0, bytes_received = 0;
};

class Messenger final : public Sink {
 public:
  explicit Messenger(uint64_t eager_bytes) : eager_bytes_(eager_bytes) {}
  ~Messenger();
  // Before any traffic. The transports must outlive the messenger's last call.
  void use(const Transports &transports) { transports_ = &transports; }

  // The channel lives until detach. Call replay once the owner can hear of what came before it existed.
  Channel &attach(uint64_t comm, ChannelOwner &owner, int rank, std::vector<PeerAddress> peers);
  void replay(Channel &channel);
  bool attached(uint64_t comm) const;
  // Whoever still speaks to the channel hears the farewell.
  void detach(Channel &channel, Farewell farewell);

  // Start a transfer. A value: it is over already, with that status, and the owner will not hear of it.
  std::optional<Status> send(Channel &channel, SendTask &task);
  std::optional<Status> receive(Channel &channel, RecvTask &task);
  // Could a message of that size leave for the rank from the chip's memory now, or come into it? Connects
  // nothing.
  bool carries(const Channel &channel, int rank, const ChipMemory &chip, uint64_t bytes) const;
  // More of the bytes are available.
  void resume(SendTask &task);
  // Takes the transfer back wherever it stands; the owner will not hear of it, its buffer is free on return
  // (a chip's: behind the chip's copies so far), and the other side is told. False: a send that arrives all
  // the same, from a copy.
  bool cancel(Channel &channel, SendTask &task);
  void cancel(Channel &channel, RecvTask &task);

  // Control messages. Text goes along as payload. Dropped silently when the peer is gone.
  void notify(Channel &channel, int rank, Wire wire, const std::string &text = {});
  // Gives the rank a descriptor, which it finds in its Channel::shared. The link must be connected.
  Status share(Channel &channel, int rank, int fd);
  // Why nothing comes from a rank in Channel::left.
  static Status has_left(const Channel &channel, int rank);
  // The link to a rank, connecting it if need be.
  Link &link(Channel &channel, int rank);

  // "tcp", "loopback"; "" while there is no connection.
  const char *path(const Channel &channel, int rank) const;

  Incoming *on_header(Endpoint &from, const Header &header, size_t size) override;
  void on_payload(Endpoint &from, const Header &header, size_t size, Incoming *into) override;
  void on_sent(Endpoint &to, Outgoing &message) override;
  void on_failed(Endpoint &endpoint, const Status &why, bool clean) override;

 private:
  static constexpr uint64_t kEagerWindow = 16 << 20;
  static constexpr uint64_t kEntryCost = 128;  // what an unexpected message costs beside its payload
  static constexpr size_t kEarlyChannels = 4096;
  static constexpr size_t kEarlyMessages = 65536;
  static constexpr size_t kClosedKept = 65536;
  static constexpr size_t kSpareUnexpected = 64;
  static constexpr size_t kSparePayload = 4096;

  // messenger.cc: links, channels, control messages
  static bool holds(const Channel &channel, int rank, const Link &link);
  Link &link_of(Endpoint &endpoint);
  Link &link_to(const PeerAddress &peer);
  enum class Lookup { found, closed, refused };
  Lookup find_channel(const Wire &wire, const Link &link, Channel *&channel);
  void on_control(Link &link, const Wire &wire, const std::string &text);
  void deliver(Channel &channel, int source, const Wire &wire, const std::string &text);
  void transmit(Link &link, const Wire &wire, const std::string &text = {});
  Arrival *arrival(Link &link);
  void recycle(Arrival *arrival);
  void answer_late(Link &link, const Wire &wire);
  template <class Dropped>
  void drop_unexpected(Channel &channel, Dropped dropped);
  void drop_arrivals(Link &link);
  std::unique_ptr<Unexpected> unexpected(const Wire &wire, Link &link, size_t size);
  void recycle(std::unique_ptr<Unexpected> message);
  static void tell_gone(Channel &channel, const Link &link, int rank);

  // protocol.cc: eager and rendezvous
  Incoming *on_eager(Channel &channel, Link &link, const Wire &wire, size_t size);
  void on_eager_payload(Arrival &arrival, const Wire &wire);
  void on_offer(Channel &channel, Link &link, const Wire &wire);
  void on_clear(Link &link, const Wire &wire);
  Incoming *on_data(Link &link, const Wire &wire, size_t size);
  void on_data_payload(Arrival &arrival, size_t size);
  void on_refuse(Link &link, const Wire &wire);
  void on_withdraw(Link &link, const Wire &wire);
  void bind(RecvTask &task, Link &link, const Wire &wire);
  void ask(RecvTask &task, const Wire &wire);
  static std::byte *host_data(RecvTask &task);
  std::optional<Status> claim(RecvTask &task, std::unique_ptr<Unexpected> message);
  void unbind(RecvTask &task);
  void consumed(Link &link, uint64_t bytes);
  void pump(SendTask &task);
  void take_back_chunks(SendTask &task);
  void finish(SendTask &task, const Status &status);
  void finish(RecvTask &task, const Status &status);

  const uint64_t eager_bytes_;
  const Transports *transports_ = nullptr;
  std::map<ContextId, std::unique_ptr<Link>> links_;
  std::unordered_map<uint64_t, std::unique_ptr<Channel>> channels_;
  std::unordered_map<uint64_t, Farewell> closed_;  // channels that were detached
  std::vector<std::unique_ptr<Arrival>> arrivals_;
  std::vector<Arrival *> free_arrivals_;
  std::vector<std::unique_ptr<Unexpected>> spare_unexpected_;
  std::unordered_map<const Unexpected *, std::unique_ptr<Unexpected>> claimed_;
  size_t early_channels_ = 0;
  uint64_t ids_ = 0;
};

}  // namespace dicomm
