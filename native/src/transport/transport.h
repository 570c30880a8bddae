// Contract: a way to move messages between two Contexts.
//
// A message is a header of kHeaderBytes, opaque to the transport, and a payload of any size. Messages of one
// Lane arrive in the order they were sent; messages of different lanes may overtake one another. A
// transport keeps every promise below for all lanes and sizes, or fails the endpoint; it never loses,
// duplicates or cuts a message silently.
//
// Threads: every function is called with the engine lock held, and calls Sink with it held, only from inside
// Reactor::dispatch (never from inside send, endpoint or cancel). Nothing here blocks: connecting, accepting
// and flushing go on in the background; messages sent meanwhile are queued in the order of the calls.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"
#include "progress/reactor.h"

namespace dicomm {

inline constexpr size_t kHeaderBytes = 64;
using Header = std::array<std::byte, kHeaderBytes>;
using ContextId = std::array<std::byte, 16>;
using Key = std::array<std::byte, 32>;

// What one Context must know of another to reach it; travels through the store.
struct PeerAddress {
  ContextId id{};
  Key key{};             // proves to the peer's listener that we may talk to it (HMAC, never sent)
  std::string host;      // for messages
  uint64_t process = 0;  // pid, for messages
  std::string address;   // one line per transport, its Transport::address(): "tcp 192.0.2.1 4711"
};

enum class Lane : uint8_t {
  control,  // small messages and everything whose order matters
  bulk,     // chunks of large messages; may be spread over several connections
};

class ChipMemory;  // chip_memory.h

// One message on its way out. The caller owns it and keeps it and the payload in place until send() returned
// Sent::done, Sink::on_sent, Sink::on_failed of the endpoint, or cancel() returned true.
struct Outgoing {
  Header header;
  const std::byte *data = nullptr;
  size_t size = 0;
  Lane lane = Lane::control;
  ChipMemory *chip = nullptr;  // whose memory `data` is, on the bulk lane of an endpoint that carries it
  // The transport's own while the message is queued.
  size_t progress = 0;
  Outgoing *next = nullptr;
};

// Where a payload goes. Belongs to the sink and stays alive until on_payload or on_failed. Null means "read
// and discard"; Endpoint::revoke makes it so later.
struct Incoming {
  std::byte *data = nullptr;
  ChipMemory *chip = nullptr;  // whose memory `data` is; as in Outgoing
};

class Endpoint;

class Sink {
 public:
  // A header came; `size` bytes of payload follow. Null: the message is not acceptable, fail the endpoint
  // with PROTOCOL. Also called when size is 0, then at once followed by on_payload.
  virtual Incoming *on_header(Endpoint &from, const Header &header, size_t size) = 0;
  virtual void on_payload(Endpoint &from, const Header &header, size_t size, Incoming *into) = 0;
  virtual void on_sent(Endpoint &to, Outgoing &message) = 0;
  // The endpoint is gone: no call names it after this one, what was queued was not sent (no on_sent for
  // it) and what was half received is over. `clean`: the peer said goodbye first.
  virtual void on_failed(Endpoint &endpoint, const Status &why, bool clean) = 0;

 protected:
  ~Sink() = default;
};

enum class Sent { done, queued };

struct TransportLimits {
  size_t max_payload;  // larger payloads must be cut by the caller
  size_t bulk_chunk;   // payload size at which bulk messages move best
};

// One peer over one transport. Owned by the transport, alive until Sink::on_failed returned or close().
class Endpoint {
 public:
  virtual ~Endpoint() = default;
  virtual const ContextId &peer() const = 0;
  virtual TransportLimits limits() const = 0;
  // "tcp", "rdma-direct": the word users see. May change while the endpoint lives.
  virtual const char *path() const = 0;
  // JSON members behind those every peer has, each preceded by a comma: what a transport counts of its own.
  virtual std::string peer_counters() const { return {}; }
  // Tries to hand the message to the kernel at once when nothing is queued before it. done: the payload may
  // be reused now, on_sent will not be called. queued: on_sent tells.
  virtual Sent send(Outgoing &message) = 0;
  // May bulk payloads be in the chip's memory, sent and received? Once true, they arrive for as long as the
  // endpoint lives; false later: not without copies, now.
  virtual bool carries(const ChipMemory & /*chip*/) const { return false; }
  // Takes back a queued message. What has partly left is copied, so that the rest can still follow (from a
  // chip's memory: as zeros); in both cases the caller may reuse header and payload on return, a chip's
  // behind the copies of that chip. True: nothing of it had left.
  virtual bool cancel(Outgoing &message) = 0;
  // The sink's memory behind `into`, whose payload is on its way from this peer, is needed for something
  // else: on return nothing writes to it any more, but for a chip's own copies that were started. What still
  // comes of the payload is dropped; on_payload follows as ever.
  virtual void revoke(Incoming &into) { into.data = nullptr; }

  // Gives the peer a descriptor of its own for what `fd` names, ahead of every message sent from now on. Not
  // before the endpoint is connected; NOT_SUPPORTED where processes cannot share descriptors.
  virtual Status hand_over(int /*fd*/) {
    return Status::make(DICOMM_NOT_SUPPORTED, "descriptors cannot be handed over on this path");
  }
  // The oldest descriptor that the peer has handed over and nobody has taken; invalid when there is none.
  virtual UniqueFd take_handed() { return {}; }

  void *user = nullptr;  // the sink's own
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual const char *name() const = 0;
  virtual TransportLimits limits() const = 0;
  // The line other Contexts need in PeerAddress::address; "" when there is nothing to tell.
  virtual std::string address() const = 0;
  // Could endpoint() of this peer succeed? Of a list of transports the first that says so is used.
  virtual bool reaches(const PeerAddress &peer) const = 0;
  // The endpoint to this peer: the existing one, else a new one that starts to connect. Failure to connect
  // arrives as Sink::on_failed with CONNECT_FAILED. Peers that connect to us appear as
  // endpoints in Sink::on_header.
  virtual Endpoint &endpoint(const PeerAddress &peer) = 0;
  // Finds out whether the chip's memory can be carried. Once, before the first endpoint; the chip's run time
  // may block.
  virtual void meet(ChipMemory & /*chip*/) {}
  // Says goodbye on every endpoint behind what is queued. True when all has been flushed and every peer has
  // hung up too; the owner drives the reactor and asks again, or gives up by destroying the transport.
  virtual bool shutdown() = 0;
  // In a forked child: close descriptors, send nothing.
  virtual void after_fork() = 0;
  // JSON members ("connections": 3, ...) for dicomm_context_info.
  virtual std::string counters() const = 0;
};

}  // namespace dicomm
