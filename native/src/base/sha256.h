// SHA-256 (FIPS 180-4), HMAC-SHA256 (RFC 2104), random bytes: what peers need to prove a shared secret.
//
// Our own, see docs/adr/0002-own-sha256.md. No encryption is done anywhere in dicomm.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

namespace dicomm {

using Digest = std::array<std::byte, 32>;
using Bytes = std::span<const std::byte>;

class Sha256 {
 public:
  Sha256();
  void update(Bytes data);
  // Ends the computation; the object is spent.
  Digest finish();

 private:
  void compress(const std::byte *block);

  std::array<uint32_t, 8> state_;
  std::array<std::byte, 64> block_;
  size_t filled_ = 0;
  uint64_t length_ = 0;
};

// The parts are authenticated as their concatenation: callers keep it unambiguous with fixed lengths.
Digest hmac_sha256(Bytes key, std::initializer_list<Bytes> parts);

// Equality in a time that does not depend on where the bytes differ.
bool equal_in_constant_time(Bytes a, Bytes b);

// From the kernel's generator; blocks only in the first moments after boot.
void random_bytes(std::span<std::byte> out);

}  // namespace dicomm
