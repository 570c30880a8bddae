#include "transport/verbs/record_stream.h"

#include <errno.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

namespace dicomm {

void RecordStream::push(RecordKind kind, uint32_t epoch_or_slot, const void *body, size_t bytes) {
  const RecordHead head{kind, epoch_or_slot, bytes};
  Piece piece;
  piece.own.resize(sizeof(head) + bytes);
  std::memcpy(piece.own.data(), &head, sizeof(head));
  if (bytes > 0) std::memcpy(piece.own.data() + sizeof(head), body, bytes);
  piece.bytes = piece.own.size();
  queue_.push_back(std::move(piece));
}

void RecordStream::push_payload(uint32_t slot, const std::byte *data, size_t bytes) {
  const RecordHead head{RecordKind::payload, slot, bytes};
  Piece first;
  first.own.resize(sizeof(head));
  std::memcpy(first.own.data(), &head, sizeof(head));
  first.bytes = sizeof(head);
  queue_.push_back(std::move(first));
  Piece piece;
  piece.data = data;
  piece.bytes = bytes;
  piece.payload = true;
  piece.slot = slot;
  queue_.push_back(std::move(piece));
}

void RecordStream::move_payload(uint32_t slot, const std::byte *data) {
  for (Piece &piece : queue_)
    if (piece.payload && piece.slot == slot) piece.data = data;
}

void RecordStream::write(int fd) {
  while (!queue_.empty()) {
    Piece &piece = queue_.front();
    const std::byte *data = piece.payload ? piece.data : piece.own.data();
    const ssize_t n =
        ::send(fd, data + piece.written, piece.bytes - piece.written, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return;
    piece.written += static_cast<size_t>(n);
    if (piece.written < piece.bytes) return;
    const bool payload = piece.payload;
    const uint32_t slot = piece.slot;
    queue_.pop_front();
    if (payload) reader_.on_payload_written(slot);
  }
}

Status RecordStream::begin_body() {
  in_body_ = true;
  head_read_ = 0;
  body_read_ = 0;
  const bool payload = head_.kind == RecordKind::payload;
  if (head_.bytes > (payload ? kVerbsMaxPayload : std::max(kVerbsFrameBytes, sizeof(Setup))) ||
      (payload && !reader_.on_payload_begins(head_.epoch_or_slot, head_.bytes)))
    return Status::make(DICOMM_PROTOCOL, "it sent a record of ", head_.bytes,
                        " bytes, which dicomm never does");
  if (!payload) body_.resize(head_.bytes);
  return {};
}

bool RecordStream::finish() {
  in_body_ = false;
  return head_.kind == RecordKind::payload ? reader_.on_payload_ends()
                                           : reader_.on_record(head_, body_.data());
}

Status RecordStream::read(int fd, bool &ended) {
  std::array<std::byte, 4096> dropped;
  for (;;) {
    std::byte *into = reinterpret_cast<std::byte *>(&head_) + head_read_;
    size_t room = sizeof(head_) - head_read_;
    if (in_body_) {
      room = head_.bytes - body_read_;
      into = head_.kind == RecordKind::payload ? reader_.payload_destination() : body_.data();
      if (into == nullptr) {
        into = dropped.data();
        room = std::min(room, dropped.size());
      } else {
        into += body_read_;
      }
    }
    const ssize_t n = ::recv(fd, into, room, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return {};
    if (n < 0) return Status::system_failure(DICOMM_PEER_LOST, errno, "the connection broke");
    if (n == 0) {
      ended = true;
      return {};
    }
    if (in_body_) {
      body_read_ += static_cast<size_t>(n);
    } else {
      head_read_ += static_cast<size_t>(n);
      if (head_read_ < sizeof(head_)) continue;
      DICOMM_TRY(begin_body());
    }
    if (in_body_ && body_read_ == head_.bytes && !finish()) return {};
  }
}

}  // namespace dicomm
