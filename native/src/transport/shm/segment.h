// Segment: the memory two processes share for one connection: a ring of bytes each way, and a table of
// messages that the reader fetches from the writer's own memory.
//
// What the other process writes here is checked before it is used.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/shared_memory.h"

namespace dicomm {

inline constexpr uint64_t kRingBytes = uint64_t{256} << 10;
inline constexpr uint32_t kSlots = 32;
inline constexpr size_t kMaxShmPayload = size_t{1} << 20;

// One message in the writer's memory. offered -> reading -> done by the reader; done -> free by the writer,
// and offered -> free when it closes. A writer that moves the bytes changes the address and then looks at the
// state; the reader takes the slot and then looks at the address: one of them sees what the other did.
struct SharedSlot {
  enum State : uint32_t { free, offered, reading, done };
  std::atomic<uint32_t> state;
  std::atomic<uint64_t> address;
};

// Written by one side.
struct SharedSide {
  alignas(64) std::atomic<uint32_t> asleep;  // wants a byte on the socket when something changes
  std::atomic<uint32_t> reads_directly;      // this side can read the other's memory
  std::atomic<int32_t> core;                 // where this side polled last; -1: unknown
  std::atomic<uint64_t> cookie_address;      // for the other side to try; 0: not there yet
  std::atomic<uint64_t> cookie;
};

// From one side to the other. Positions count bytes since the start and never wrap.
struct SharedRing {
  alignas(64) std::atomic<uint64_t> tail;     // written up to; the writer's
  alignas(64) std::atomic<uint64_t> head;     // read up to; the reader's
  alignas(64) std::atomic<uint32_t> blocked;  // the writer waits for room
  SharedSlot slots[kSlots];
};

struct SharedHeader {
  uint64_t magic;
  uint64_t ring_bytes;
  SharedSide sides[2];
  SharedRing rings[2];  // [i]: written by side i
};

class Segment {
 public:
  Status create();
  // Maps what the peer has made; PROTOCOL when it is not that.
  Status adopt(UniqueFd fd);
  void unmap();
  bool mapped() const { return header_ != nullptr; }
  int fd() const { return memory_.fd(); }
  void close_fd() { memory_.close_fd(); }  // once both sides have mapped it
  SharedHeader *operator->() const { return header_; }
  std::byte *ring(int side) const;

 private:
  SharedMemory memory_;
  SharedHeader *header_ = nullptr;
};

}  // namespace dicomm
