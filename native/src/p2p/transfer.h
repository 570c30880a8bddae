// Transfers: one message out or in, as the layers above start it. Plain state machines driven by Messenger.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "p2p/wire.h"

namespace dicomm {

struct Link;
struct SendTask;
struct RecvTask;

// Hears of a transfer's end, from inside Reactor::dispatch; never for a transfer that was canceled.
class TransferOwner {
 public:
  virtual void on_sent(SendTask &task, const Status &status) = 0;
  virtual void on_received(RecvTask &task, const Status &status) = 0;
  // Bytes from `offset` on are there; only for a RecvTask that tells of parts, and before on_received.
  // on_chip: in its `on_chip`, not in `data`.
  virtual void on_part(RecvTask &, uint64_t /*offset*/, uint64_t /*bytes*/, bool /*on_chip*/) {}
  // It has taken a message; again, when the one before was withdrawn. It may set `data`.
  virtual void on_matched(RecvTask &) {}
  // A receive without `data` needs host memory for the `bytes` of its message. Null: there is none.
  virtual std::byte *host_memory(RecvTask &) { return nullptr; }

 protected:
  ~TransferOwner() = default;
};

// A message handed to the transport: a task's header or chunk, or a control message that owns itself.
struct Packet : Outgoing {
  SendTask *task = nullptr;  // null: control, freed when sent
  bool chunk = false;
  std::vector<std::byte> text;  // payload of a control message
};

// The chunks of a rendezvous message that are under way.
struct Chunks {
  static constexpr int kWindow = 4;
  Packet chunks[kWindow];
  bool busy[kWindow] = {};
  uint64_t offset = 0;  // next byte to hand over
  uint64_t sent = 0;
};

// Filled in by the owner up to `state`, then left alone until the end. The bytes stay in place meanwhile.
struct SendTask {
  TransferOwner *owner = nullptr;
  uint32_t index = 0;  // the owner's own
  int peer = -1;
  MatchKey key;
  Fingerprint fingerprint;
  const std::byte *data = nullptr;
  ChipMemory *chip = nullptr;  // whose memory `data` is; see Messenger::carries
  uint64_t bytes = 0;
  uint64_t available = UINT64_MAX;  // so many of them are there by now; see Messenger::resume

  enum class State : uint8_t { idle, queued, offered, streaming, done } state = State::idle;
  Link *link = nullptr;
  uint64_t id = 0;       // names the task in rts, cts
  uint64_t peer_id = 0;  // the receiver's, once it has answered
  Packet packet;
  bool packet_queued = false;
  std::unique_ptr<Chunks> stream;
};

struct Arrival;
struct Unexpected;

struct RecvTask {
  TransferOwner *owner = nullptr;
  uint32_t index = 0;
  int peer = DICOMM_ANY_SOURCE;
  MatchKey key;
  Fingerprint fingerprint;
  std::byte *data = nullptr;  // null: host_memory() is asked, if need be
  std::byte *on_chip = nullptr;
  ChipMemory *chip = nullptr;  // whose memory `on_chip` is; may be set at any time
  uint64_t capacity = 0;
  bool tells_parts = false;  // the owner hears of the parts of a long message as they come

  enum class State : uint8_t { idle, posted, arriving, done } state = State::idle;
  uint64_t order = 0;  // of posting, within the channel
  int source = -1;     // once matched
  uint64_t bytes = 0;  // of the message
  uint64_t received = 0;
  Status failure;  // found at the match; reported when the payload has passed
  Link *link = nullptr;
  uint64_t id = 0;  // rendezvous: names the task in data
  uint64_t sender_id = 0;
  std::vector<Arrival *> arrivals;  // payloads being read into `data`
  Unexpected *claimed = nullptr;    // a message still arriving in a buffer of its own

  // As new, for the next message; keeps the memory it has.
  void renew() {
    auto memory = std::move(arrivals);
    *this = RecvTask();
    arrivals = std::move(memory);
  }
};

// A payload on its way in: into a receive, into an unexpected message, or nowhere.
struct Arrival : Incoming {
  Link *link = nullptr;
  RecvTask *task = nullptr;
  Unexpected *unexpected = nullptr;
  uint64_t offset = 0;          // of the payload within the receive
  std::vector<std::byte> text;  // control messages with a payload
};

// A message nobody has asked for yet.
struct Unexpected {
  Wire wire;
  Link *link = nullptr;
  uint64_t order = 0;  // of arrival, within the channel
  std::unique_ptr<std::byte[]> payload;
  size_t capacity = 0;  // of payload
  bool complete = false;
  RecvTask *claimant = nullptr;
};

}  // namespace dicomm
