// Channel: one communicator's matching state. Who waits for what, and what came before anybody asked.
//
// A receive takes the oldest message that fits it; a message goes to the oldest receive that fits it.
// Messages of one sender with equal keys therefore keep their order. Engine lock held throughout.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "p2p/transfer.h"

namespace dicomm {

// The communicator as its channel sees it.
class ChannelOwner {
 public:
  virtual void on_hello(int rank) = 0;
  virtual void on_bye(int rank) = 0;
  // The peer's process is gone without goodbye, or cannot be reached.
  virtual void on_peer_lost(int rank, const Status &why) = 0;
  virtual void on_remote_failure(int rank, dicomm_status code, const std::string &text, const Wire &wire) = 0;
  // A message of this collective came from the rank. False: we called another one, or the communicator has
  // failed already; the message is not for us.
  virtual bool on_fingerprint(int rank, uint32_t seq, const Fingerprint &theirs) = 0;
  // The rank waits for us in this collective.
  virtual void on_probe(int rank, uint32_t seq, const Fingerprint &theirs) = 0;

 protected:
  ~ChannelOwner() = default;
};

class Channel {
 public:
  explicit Channel(uint64_t id) : id(id) {}

  // The oldest unexpected message for this receive, taken out of the queue; else the receive is queued.
  std::unique_ptr<Unexpected> post(RecvTask &task);
  // The oldest receive for a message of `source`, taken out of the queue; else null.
  RecvTask *match(int source, const MatchKey &key);
  Unexpected &keep(std::unique_ptr<Unexpected> message);
  void remove(RecvTask &task);
  // Takes back the offer `id` of a peer that withdraws it.
  void withdraw(const Link &link, uint64_t id);
  void forget(const Link &link);  // the peer is gone: what it has not completed here goes
  // Takes out every unexpected message for which pick(source, message) holds.
  template <class Pick>
  std::vector<std::unique_ptr<Unexpected>> take_if(Pick pick) {
    std::vector<std::unique_ptr<Unexpected>> taken;
    for (auto &[source, queue] : unexpected_) {
      for (auto &message : queue) {
        if (pick(source, *message)) taken.push_back(std::move(message));
      }
      std::erase(queue, nullptr);
    }
    return taken;
  }

  // Calls visit(source, wire) for every unexpected message of collective `seq`.
  template <class Visit>
  void each_unexpected(uint32_t seq, Visit visit) const {
    for (const auto &[source, queue] : unexpected_) {
      for (const auto &message : queue) {
        if (message->wire.opcode > DICOMM_RECV && message->wire.seq == seq) visit(source, message->wire);
      }
    }
  }

  // What came before the communicator existed here, replayed to the owner when it is attached.
  struct Early {
    const Link *link;
    Wire wire;
    std::string text;
  };

  const uint64_t id;
  ChannelOwner *owner = nullptr;  // null: peers speak of a communicator that this rank has not made yet
  int rank = -1;
  std::vector<PeerAddress> peers;  // by rank
  std::vector<Link *> links;       // by rank; null until first used
  std::vector<Early> early;
  std::set<int> left;  // ranks that closed the communicator
  UniqueFd shared;     // what a peer has shared, until the owner takes it

 private:
  std::map<int, std::deque<RecvTask *>> posted_;  // by source
  std::deque<RecvTask *> posted_any_;
  std::map<int, std::deque<std::unique_ptr<Unexpected>>> unexpected_;  // by source
  uint64_t orders_ = 0;
};

}  // namespace dicomm
