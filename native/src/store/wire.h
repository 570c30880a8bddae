// What tcp store clients and servers say to each other after the handshake (base/handshake.h).
//
// A client has one request under way. Sending another one withdraws a `get` that still waits; its
// reply, should it be on the way already, is known by its old id and skipped.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/clock.h"
#include "base/error.h"

namespace dicomm {

inline constexpr size_t kMaxKeyBytes = 512;
inline constexpr size_t kMaxValueBytes = size_t{16} << 20;

enum class StoreOp : uint32_t { set = 1, get, check, add };

// Followed by the key and the value (add: the delta as int64_t).
struct StoreRequest {
  StoreOp op;
  uint32_t key_bytes;
  uint64_t value_bytes;
  uint64_t id;
};
static_assert(sizeof(StoreRequest) == 24);

// Followed by the value (get), a byte (check), the sum as int64_t (add), or on failure the text.
struct StoreReply {
  uint32_t status;  // dicomm_status
  uint32_t zero;
  uint64_t bytes;
  uint64_t id;
};
static_assert(sizeof(StoreReply) == 24);

inline Status check_entry(std::string_view key, size_t value_bytes) {
  if (key.empty() || key.size() > kMaxKeyBytes)
    return Status::make(DICOMM_INVALID_ARGUMENT, "a store key has 1 to ", kMaxKeyBytes, " bytes, not ",
                        key.size());
  if (value_bytes > kMaxValueBytes)
    return Status::make(DICOMM_INVALID_ARGUMENT, "the value of store key '", key, "' has ", value_bytes,
                        " bytes, more than ", kMaxValueBytes);
  return {};
}

// For requests that a live store answers at once. Generous even when the time-out is short: giving up on an
// add leaves open whether it happened.
inline Nanos answer_deadline(Nanos timeout) { return deadline_after(std::max(timeout, 30 * kSecond)); }

inline double seconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds / 1000000) / 1000; }

}  // namespace dicomm
