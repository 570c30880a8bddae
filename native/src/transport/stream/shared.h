// What all parts of one stream transport share, and what two of them say to each other when they meet.
//
// A stream transport meets its peers over stream sockets (one listener, authenticated by the handshake) and
// then moves messages over the connections it makes of them: transport/tcp over the sockets themselves,
// transport/shm through shared memory beside them.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "base/handshake.h"
#include "transport/stream/connection.h"

namespace dicomm {

struct StreamOptions {
  PeerAddress self;  // address is ignored
  uint32_t sockets_per_peer = 1;
  Nanos handshake_timeout = 5 * kSecond;
  Nanos connect_timeout = 10 * kSecond;
};

inline constexpr uint32_t kMaxSocketsPerPeer = 16;

struct StreamCounters {
  uint64_t connections = 0;  // open now
  uint64_t strangers_dropped = 0;
  uint64_t bytes_sent = 0;  // of payload
  uint64_t bytes_received = 0;
  uint64_t messages_sent = 0;
  uint64_t messages_received = 0;
};

struct StreamShared {
  Reactor &reactor;
  Sink &sink;
  const char *path;  // the transport's name
  TransportLimits limits;
  StreamOptions options;
  StreamCounters counters;
  // From a socket whose peer is proven.
  std::function<std::unique_ptr<Connection>(Connection::Owner &, UniqueFd)> make_connection;
  bool watching = false;        // a look for vanished hosts is due
  std::function<void()> watch;  // makes it so
};

// The hello of the handshake.
struct StreamHello {
  ContextId id;
  ContextId target;  // who we think listens there
  uint32_t index;    // of the connection among those between the two
  uint32_t zero;
  uint64_t process;
  char host[64];
};
static_assert(sizeof(StreamHello) == kHelloBytes);

// Verdicts beside kVerdictAccept.
inline constexpr uint32_t kVerdictYield = 1;  // my own attempt to reach you goes on instead
inline constexpr uint32_t kVerdictBusy = 2;   // not now: an older connection to you is not cleared away yet
inline constexpr uint32_t kVerdictNotMe = 3;  // the target is somebody else

}  // namespace dicomm
