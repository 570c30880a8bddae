// What all parts of one tcp transport share, and what two of them say to each other when they meet.
//
// On an established connection frames follow one another in both directions, in the sender's byte order:
//   u64 payload bytes, at most kMaxPayload; header[64]; payload
//   u64 kGoodbye alone: the sender will send no more and closes when the other side has closed
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/handshake.h"
#include "transport/transport.h"

namespace dicomm {

struct TcpOptions {
  PeerAddress self;  // address is ignored
  std::string interface;
  std::string route_to;
  uint32_t sockets_per_peer = 1;
  Nanos handshake_timeout = 5 * kSecond;
  Nanos connect_timeout = 10 * kSecond;
};

inline constexpr size_t kMaxPayload = size_t{1} << 20;
// Fills the socket's buffer in one call and still lets other connections have their turn.
inline constexpr size_t kBulkChunk = size_t{512} << 10;
inline constexpr uint32_t kMaxSocketsPerPeer = 16;
inline constexpr uint64_t kGoodbye = ~uint64_t{0};
inline constexpr size_t kFrameHead = sizeof(uint64_t) + kHeaderBytes;

struct TcpCounters {
  uint64_t connections = 0;  // open now
  uint64_t strangers_dropped = 0;
  uint64_t bytes_sent = 0;  // of payload
  uint64_t bytes_received = 0;
  uint64_t messages_sent = 0;
  uint64_t messages_received = 0;
};

struct TcpShared {
  Reactor &reactor;
  Sink &sink;
  TcpOptions options;
  TcpCounters counters;
  std::vector<std::byte> scratch;  // small frames of the connection that is being read
  bool watching = false;           // a look for vanished hosts is due
  std::function<void()> watch;     // makes it so
};

// The hello of the handshake.
struct TcpHello {
  ContextId id;
  ContextId target;  // who we think listens there
  uint32_t index;    // of the connection among those between the two
  uint32_t zero;
  uint64_t process;
  char host[64];
};
static_assert(sizeof(TcpHello) == kHelloBytes);

// Verdicts beside kVerdictAccept.
inline constexpr uint32_t kVerdictYield = 1;  // my own attempt to reach you goes on instead
inline constexpr uint32_t kVerdictBusy = 2;   // not now: an older connection to you is not cleared away yet
inline constexpr uint32_t kVerdictNotMe = 3;  // the target is somebody else

}  // namespace dicomm
