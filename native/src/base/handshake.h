// The handshake both the tcp store and the tcp transport begin with: each side proves that it knows the key.
//
// Until it is over, a server reads exactly the 32 + 144 bytes below and believes nothing in them but what
// the HMAC covers. Bytes on the wire, fixed lengths, in this order:
//
//   client greeting    32  "dicomm", service, version, u32 0x01020304 in the sender's byte order,
//                          u32 0, nonce[16]
//   server challenge   64  the same 32 with the server's nonce, MAC("server", greeting | these 32)
//   client proof      144  hello[112], MAC("client", greeting | challenge | hello)
//   server verdict     40  u32 verdict, u32 0, MAC("answer", greeting | challenge | proof | first 8)
//   where MAC(word, bytes) = HMAC-SHA256(key, word | SHA-256(bytes))
//
// The first eight bytes and the mark never change between versions, so that a version or byte order
// clash can be named on both sides. The hello belongs to the service and has the sender's byte order.
//
// Handshake is a pure state machine over buffers; pump() connects it to a non-blocking socket.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/sha256.h"

namespace dicomm {

inline constexpr size_t kHelloBytes = 112;
using Hello = std::array<std::byte, kHelloBytes>;
inline constexpr uint32_t kVerdictAccept = 0;  // other values belong to the service

enum class Service : uint8_t { store = 's', transport = 't' };

class Handshake {
 public:
  static Handshake client(Service service, Bytes key, const Hello &hello);
  static Handshake server(Service service, Bytes key);

  // What to write next (empty: nothing now), and how much of it was written.
  Bytes output() const { return Bytes(out_).subspan(written_); }
  void wrote(size_t bytes) { written_ += bytes; }
  // Where the next bytes go, never more than this handshake may read (empty: nothing now).
  std::span<std::byte> input();
  // A failure ends the handshake: PROTOCOL when the other side is no dicomm or another version,
  // CONNECT_FAILED when it does not know the key.
  Status filled(size_t bytes);

  // Server: the client is proven; hello() is its own; answer() is due.
  bool proven() const { return stage_ == Stage::proven; }
  const Hello &hello() const { return hello_; }
  void answer(uint32_t verdict);
  // Client: has sent its proof, so the server may have accepted.
  bool proof_sent() const { return stage_ >= Stage::verdict; }
  // Everything has been read and written. On a client verdict() is the server's.
  bool done() const { return stage_ == Stage::done && output().empty(); }
  uint32_t verdict() const { return verdict_; }

 private:
  enum class Stage { greeting, challenge, proof, proven, verdict, done };

  Handshake(Stage stage, Service service, Bytes key);
  void expect(Stage stage, size_t bytes);
  Status check_preamble() const;
  Status complete();
  void say(Bytes bytes);
  Digest prove(const char *who, std::initializer_list<Bytes> parts) const;

  Stage stage_;
  Service service_;
  bool is_client_;
  std::vector<std::byte> key_;
  Hello hello_{};
  uint32_t verdict_ = 0;
  std::vector<std::byte> transcript_;  // all messages so far, both directions
  std::vector<std::byte> in_;
  size_t read_ = 0;
  std::vector<std::byte> out_;
  size_t written_ = 0;
};

// Moves bytes between the handshake and a non-blocking socket until it would block or a server's answer is
// due. Fails when the handshake fails or the connection ends; a failure with an errno may be worth another
// try, one without is not.
Status pump(Handshake &handshake, int fd);

}  // namespace dicomm
