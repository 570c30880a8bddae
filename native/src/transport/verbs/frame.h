// What two verbs connections say to each other.
//
// Frames carry messages. They are numbered, kept by the sender until the receiver has acknowledged them, and
// go over whatever carries them now: a queue pair, or the socket. So a frame survives the loss of a queue
// pair, and its number tells whether it had arrived.
//
// Records go over the socket alone: they agree on queue pairs, and carry frames and payloads while there are
// none.
#pragma once

#include <algorithm>
#include <array>

#include "transport/transport.h"
#include "transport/verbs/port.h"

namespace dicomm {

inline constexpr size_t kVerbsFrameBytes = 8192;
inline constexpr size_t kVerbsMaxPayload = size_t{1} << 20;
inline constexpr uint32_t kVerbsSlots = 16;  // large messages under way per direction
inline constexpr size_t kMaxQueuePairs = 1 + 8 * kMaxPorts;

enum class FrameKind : uint16_t {
  message = 1,  // header, u64 size, the payload's beginning
  more,         // the payload goes on
  offer,        // header, u64 size, u32 slot: a large payload waits
  grant,        // Grant: where an offered payload may go
  goodbye,      // nothing follows but grants of what the other side still sends
  ack,          // not numbered: only `acked` counts
};

struct FrameHead {
  FrameKind kind;
  uint16_t bytes;   // that follow
  uint32_t number;  // of frames from this side, from 0
  uint32_t acked;   // so many of the other side's have come
};

inline constexpr size_t kFrameRoom = kVerbsFrameBytes - sizeof(FrameHead);
// Of a message's payload within its first frame.
inline constexpr size_t kFirstRoom = kFrameRoom - kHeaderBytes - sizeof(uint64_t);

struct Offer {
  Header header;
  uint64_t size;
  uint32_t slot;
  uint32_t zero = 0;
};

struct Grant {
  uint32_t slot;
  uint32_t epoch;  // 0: over the socket
  uint32_t queue_pair;
  uint32_t rkey;
  uint64_t address;
};

enum class RecordKind : uint32_t {
  setup = 1,  // Setup: my queue pairs of this epoch, or why there are none
  ready,      // mine are connected: send
  proven,     // u64, a bit per queue pair: what I sent over these arrived
  change,     // all I say from here on goes over them
  down,       // Down: mine are gone
  frame,      // a frame
  payload,    // of the offer in `slot`
  farewell,   // I have your goodbye, and all before it
};

struct RecordHead {
  RecordKind kind;
  uint32_t epoch_or_slot;
  uint64_t bytes;  // that follow
};

struct QueuePairAddress {
  uint32_t number = 0;
  uint32_t psn = 0;
  uint32_t port = 0;  // index in Setup::ports
};

struct Setup {
  uint32_t queue_pairs = 0;  // 0: none can be had; the reason stands in `text`
  uint32_t depth = 0;
  uint32_t ports = 0;
  uint32_t zero = 0;
  std::array<PortAddress, kMaxPorts> port{};
  std::array<QueuePairAddress, kMaxQueuePairs> pair{};
  char text[256] = "";

  bool valid() const {
    return ports <= kMaxPorts && queue_pairs >= 2 && queue_pairs <= kMaxQueuePairs &&
           std::all_of(pair.begin(), pair.begin() + queue_pairs,
                       [&](const QueuePairAddress &one) { return one.port < ports; });
  }
};

inline constexpr uint32_t kNoPair = 0xffffffff;
inline constexpr uint32_t kToWiden = 0xfffffffe;  // nothing failed: they are made again over more ports

struct Down {
  uint32_t received;  // frames, in all
  uint32_t pending;   // a bit per slot of the other side's offers that still waits for its payload
  uint32_t cause;     // the queue pair that failed, if that is known; or kToWiden
  uint32_t memory;    // 1: a card was refused access to memory
  char text[256];     // why
};

}  // namespace dicomm
