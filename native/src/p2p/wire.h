// The 64-byte header of every message between two Contexts, and what its fields mean.
//
// Byte order and layout are the machine's own; the transport's handshake has refused peers of another byte
// order or protocol version before any of this is read.
#pragma once

#include <bit>
#include <cstdint>

#include "transport/transport.h"

namespace dicomm {

enum class MessageType : uint8_t {
  eager = 1,  // a whole message; payload: `bytes`
  rts,        // request to send: a message of `bytes` waits at the sender under `id`
  cts,        // clear to send: the receiver of the sender's `id` takes it under `count`
  data,       // a piece for the receive `id`, at offset `count`; payload: the piece
  withdraw,   // the sender takes rts `id` back
  refuse,     // the receiver will never take rts `id` (it is gone): complete the send as canceled
  credit,     // `bytes` of eager messages have been consumed
  hello,      // this communicator exists here
  bye,        // this rank left the communicator
  fail,       // the communicator failed; `id`: dicomm_status, payload: text
  probe,      // "I wait for you in collective `seq`; this is what I called"
  share,      // the descriptor that was handed over before it is of the communicator's arena
  wake,       // look again: the arena has changed
};

// Selects the messages a receive takes, beside the sender. Collectives match by (seq, step ordinal).
struct MatchKey {
  bool collective = false;
  uint32_t seq = 0;
  uint64_t tag = 0;
  bool operator==(const MatchKey &) const = default;
};

// What ranks must agree on in one collective.
struct Fingerprint {
  uint8_t opcode = 0;
  uint8_t dtype = 0;
  uint8_t reduce = 0;
  int32_t root = -1;
  uint64_t count = 0;
  uint32_t plan = 0;  // hash of the algorithm's name and of the per-rank counts
  bool operator==(const Fingerprint &) const = default;
};

struct Wire {
  MessageType type = MessageType::eager;
  uint8_t opcode = 0;  // SEND for point to point
  uint8_t dtype = 0;
  uint8_t reduce = 0;
  uint32_t source = 0;  // the sender's rank in the communicator
  uint64_t comm = 0;
  uint64_t tag = 0;
  uint32_t seq = 0;
  int32_t root = -1;
  uint64_t count = 0;  // fingerprint; cts: the receiver's id; data: offset
  uint64_t bytes = 0;
  uint64_t id = 0;
  uint32_t plan = 0;
  uint32_t reserved = 0;

  MatchKey key() const { return {opcode > DICOMM_RECV, seq, tag}; }
  Fingerprint fingerprint() const { return {opcode, dtype, reduce, root, count, plan}; }
  void set(const Fingerprint &f) {
    opcode = f.opcode;
    dtype = f.dtype;
    reduce = f.reduce;
    root = f.root;
    count = f.count;
    plan = f.plan;
  }
  void set(const MatchKey &k) {
    seq = k.seq;
    tag = k.tag;
  }
};
static_assert(sizeof(Wire) == kHeaderBytes);

inline Header encode(const Wire &wire) { return std::bit_cast<Header>(wire); }
inline Wire decode(const Header &header) { return std::bit_cast<Wire>(header); }

}  // namespace dicomm
