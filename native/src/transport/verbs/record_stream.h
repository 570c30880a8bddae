// Records over a socket, both ways, without blocking.
#pragma once

#include <deque>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"
#include "transport/verbs/frame.h"

namespace dicomm {

class RecordStream {
 public:
  class Reader {
   public:
    // All but payloads: the record is complete. False: stop reading, the stream may be gone.
    virtual bool on_record(const RecordHead &head, const std::byte *body) = 0;
    // A payload of `bytes` begins; where it goes is asked for again before every read. False: not acceptable.
    virtual bool on_payload_begins(uint32_t slot, size_t bytes) = 0;
    virtual std::byte *payload_destination() = 0;  // null: read and drop
    virtual bool on_payload_ends() = 0;            // as on_record
    // All of the payload is with the kernel.
    virtual void on_payload_written(uint32_t slot) = 0;

   protected:
    ~Reader() = default;
  };

  explicit RecordStream(Reader &reader) : reader_(reader) {}

  void push(RecordKind kind, uint32_t epoch_or_slot, const void *body = nullptr, size_t bytes = 0);
  // The bytes stay in place until on_payload_written; move_payload tells of another place.
  void push_payload(uint32_t slot, const std::byte *data, size_t bytes);
  void move_payload(uint32_t slot, const std::byte *data);
  bool idle() const { return queue_.empty(); }
  // Writes what the socket takes. An error is left for read() to find.
  void write(int fd);
  // Reads until the socket is empty or the reader stops. `ended`: the other side has closed.
  Status read(int fd, bool &ended);
  bool between_records() const { return head_read_ == 0 && !in_body_; }

 private:
  struct Piece {
    std::vector<std::byte> own;
    const std::byte *data = nullptr;  // of a payload
    size_t bytes = 0;
    size_t written = 0;
    bool payload = false;
    uint32_t slot = 0;
  };

  bool finish();
  Status begin_body();

  Reader &reader_;
  std::deque<Piece> queue_;
  RecordHead head_{};
  size_t head_read_ = 0;
  bool in_body_ = false;
  size_t body_read_ = 0;
  std::vector<std::byte> body_;
};

}  // namespace dicomm
