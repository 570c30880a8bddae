#include "base/handshake.h"

#include <errno.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

namespace dicomm {
namespace {

constexpr uint8_t kVersion = 1;
constexpr uint32_t kOrderMark = 0x01020304;

struct Preamble {
  char magic[6] = {'d', 'i', 'c', 'o', 'm', 'm'};
  uint8_t service = 0;
  uint8_t version = kVersion;
  uint32_t order = kOrderMark;
  uint32_t zero = 0;
  std::array<std::byte, 16> nonce{};
};
static_assert(sizeof(Preamble) == 32);

constexpr size_t kGreetingBytes = sizeof(Preamble);
constexpr size_t kChallengeBytes = sizeof(Preamble) + sizeof(Digest);
constexpr size_t kProofBytes = kHelloBytes + sizeof(Digest);
constexpr size_t kVerdictBytes = 8 + sizeof(Digest);

Preamble make_preamble(Service service) {
  Preamble preamble;
  preamble.service = static_cast<uint8_t>(service);
  random_bytes(preamble.nonce);
  return preamble;
}

template <class T>
Bytes bytes_of(const T &value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace

Handshake::Handshake(Stage stage, Service service, Bytes key)
    : stage_(stage),
      service_(service),
      is_client_(stage == Stage::challenge),
      key_(key.begin(), key.end()),
      in_(is_client_ ? kChallengeBytes : kGreetingBytes) {}

Handshake Handshake::client(Service service, Bytes key, const Hello &hello) {
  Handshake handshake(Stage::challenge, service, key);
  handshake.hello_ = hello;
  handshake.say(bytes_of(make_preamble(service)));
  return handshake;
}

Handshake Handshake::server(Service service, Bytes key) { return Handshake(Stage::greeting, service, key); }

std::span<std::byte> Handshake::input() { return std::span(in_).subspan(read_); }

void Handshake::say(Bytes bytes) {
  out_.insert(out_.end(), bytes.begin(), bytes.end());
  transcript_.insert(transcript_.end(), bytes.begin(), bytes.end());
}

void Handshake::expect(Stage stage, size_t bytes) {
  stage_ = stage;
  in_.assign(bytes, std::byte{});
  read_ = 0;
}

Digest Handshake::prove(const char *who, std::initializer_list<Bytes> parts) const {
  Sha256 hash;  // the parts have fixed lengths, so their concatenation is unambiguous
  for (Bytes part : parts) hash.update(part);
  return hmac_sha256(key_,
                     {Bytes(reinterpret_cast<const std::byte *>(who), std::strlen(who)), hash.finish()});
}

Status Handshake::check_preamble() const {
  Preamble theirs;
  std::memcpy(&theirs, in_.data(), sizeof(theirs));
  const Preamble ours;
  if (std::memcmp(theirs.magic, ours.magic, sizeof(ours.magic)) != 0)
    return Status::make(DICOMM_PROTOCOL, "the other side does not speak dicomm's protocol");
  if (theirs.service != static_cast<uint8_t>(service_))
    return Status::make(DICOMM_PROTOCOL, "the other side is a dicomm ",
                        theirs.service == static_cast<uint8_t>(Service::store) ? "store" : "context",
                        ", which is not what was expected there");
  if (theirs.version != kVersion)
    return Status::make(DICOMM_PROTOCOL, "the other side speaks version ", int{theirs.version},
                        " of dicomm's protocol, this side version ", int{kVersion},
                        ": install the same dicomm on every host");
  if (theirs.order != kOrderMark)
    return Status::make(DICOMM_PROTOCOL,
                        "the other side has another byte order: hosts of one job must have the same");
  return {};
}

Status Handshake::filled(size_t bytes) {
  read_ += bytes;
  if (read_ < in_.size()) return {};
  return complete();
}

// A whole message lies in in_.
Status Handshake::complete() {
  const Status wrong_key = Status::make(
      DICOMM_CONNECT_FAILED,
      "the other side does not know this job's secret: give the same one to all of its processes");
  const Bytes message(in_);
  switch (stage_) {
    case Stage::greeting: {
      // On a clash the challenge is still sent, for the client to tell its user.
      const Status clash = check_preamble();
      if (!clash.ok() && std::memcmp(in_.data(), Preamble{}.magic, sizeof(Preamble{}.magic)) != 0)
        return clash;
      transcript_.assign(message.begin(), message.end());
      const Preamble preamble = make_preamble(service_);
      const Digest digest = prove("server", {message, bytes_of(preamble)});
      say(bytes_of(preamble));
      say(digest);
      expect(Stage::proof, kProofBytes);
      return clash;
    }
    case Stage::challenge: {
      DICOMM_TRY(check_preamble());
      const Digest expected = prove("server", {transcript_, message.first(kGreetingBytes)});
      if (!equal_in_constant_time(expected, message.subspan(kGreetingBytes))) return wrong_key;
      transcript_.insert(transcript_.end(), message.begin(), message.end());
      const Digest digest = prove("client", {transcript_, hello_});
      say(hello_);
      say(digest);
      expect(Stage::verdict, kVerdictBytes);
      return {};
    }
    case Stage::proof: {
      const Digest expected = prove("client", {transcript_, message.first(kHelloBytes)});
      if (!equal_in_constant_time(expected, message.subspan(kHelloBytes))) return wrong_key;
      transcript_.insert(transcript_.end(), message.begin(), message.end());
      std::copy_n(message.begin(), kHelloBytes, hello_.begin());
      expect(Stage::proven, 0);
      return {};
    }
    case Stage::verdict: {
      const Digest expected = prove("answer", {transcript_, message.first(8)});
      if (!equal_in_constant_time(expected, message.subspan(8))) return wrong_key;
      std::memcpy(&verdict_, message.data(), sizeof(verdict_));
      expect(Stage::done, 0);
      return {};
    }
    case Stage::proven:
    case Stage::done:
      break;
  }
  return Status::make(DICOMM_INTERNAL, "handshake bytes after its end");
}

void Handshake::answer(uint32_t verdict) {
  verdict_ = verdict;
  const std::array<uint32_t, 2> head = {verdict, 0};
  const Digest digest = prove("answer", {transcript_, bytes_of(head)});
  say(bytes_of(head));
  say(digest);
  stage_ = Stage::done;
}

Status pump(Handshake &handshake, int fd) {
  for (;;) {
    if (const Bytes out = handshake.output(); !out.empty()) {
      const ssize_t n = ::send(fd, out.data(), out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n >= 0) {
        handshake.wrote(static_cast<size_t>(n));
        continue;
      }
      if (errno == EINTR) continue;
      // A version clash's explanation may wait to be read behind a broken pipe: reading decides.
      if (errno == EAGAIN) return {};
      if (errno != EPIPE) return Status::system_failure(DICOMM_CONNECT_FAILED, errno, "the handshake failed");
    }
    const std::span<std::byte> in = handshake.input();
    if (in.empty()) return {};
    const ssize_t n = ::recv(fd, in.data(), in.size(), MSG_DONTWAIT);
    if (n > 0) {
      const Status status = handshake.filled(static_cast<size_t>(n));
      if (status.ok()) continue;
      const Bytes last = handshake.output();  // our version for the client to read, if any
      if (!last.empty()) ::send(fd, last.data(), last.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      return status;
    }
    if (n == 0)
      return Status::system_failure(
          DICOMM_CONNECT_FAILED, ECONNRESET,
          "the other side hung up during the handshake: it is ending, overrun, or no "
          "dicomm process of this job");
    if (errno == EINTR) continue;
    if (errno == EAGAIN) return {};
    return Status::system_failure(DICOMM_CONNECT_FAILED, errno, "the handshake failed");
  }
}

}  // namespace dicomm
