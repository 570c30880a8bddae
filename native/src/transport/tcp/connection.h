// A tcp connection: messages over one authenticated socket. See transport/stream/connection.h.
//
// Frames follow one another in both directions, in the sender's byte order:
//   u64 payload bytes, at most kMaxPayload; header[64]; payload
//   u64 kGoodbye alone: the sender will send no more and closes when the other side has closed
#pragma once

#include <sys/uio.h>

#include <array>
#include <vector>

#include "transport/stream/message_connection.h"

namespace dicomm {

inline constexpr size_t kMaxPayload = size_t{1} << 20;
// Fills the socket's buffer in one call and still lets other connections have their turn.
inline constexpr size_t kBulkChunk = size_t{512} << 10;
inline constexpr uint64_t kGoodbye = ~uint64_t{0};
inline constexpr size_t kFrameHead = sizeof(uint64_t) + kHeaderBytes;

class TcpConnection final : public MessageConnection {
 public:
  // scratch: for small frames of the connection that is being read; shared by all of a transport.
  TcpConnection(StreamShared &shared, Owner &owner, UniqueFd fd, std::vector<std::byte> &scratch);
  ~TcpConnection() override { close(); }
  Status open() override;
  void close() override;
  bool is_open() const override { return fd_.valid(); }
  void after_fork() override { fd_.reset(); }
  Sent send(Outgoing &message) override;
  void enqueue(Outgoing &message) override;
  void flush() override;
  Canceled cancel(Outgoing &message) override;
  uint64_t queued_bytes() const override { return queued_bytes_; }
  void say_goodbye() override;
  bool watch() override;
  void on_ready(uint32_t events) override;

 private:
  struct Batch;

  bool idle() const { return !current_ && rest_.empty() && control_.empty() && bulk_.empty(); }
  void fill(Batch &batch);
  void settle(size_t written);
  bool write(Batch &batch, size_t &written);
  void want_output(bool wanted);
  bool flush_once(size_t &written);

  void receive();
  void end_of_stream();
  bool parse(const std::byte *bytes, size_t count);
  bool begin_payload();
  void end_payload();

  UniqueFd fd_;
  std::vector<std::byte> &scratch_;
  bool output_wanted_ = false;
  bool input_wanted_ = true;

  Outgoing *current_ = nullptr;  // partly written
  std::vector<std::byte> rest_;  // of a canceled message, or the goodbye
  size_t rest_written_ = 0;
  uint64_t queued_bytes_ = 0;
  bool flushing_ = false;
  int send_error_ = 0;
  enum class Goodbye { none, wanted, writing, written } goodbye_ = Goodbye::none;
  Nanos silent_since_ = 0;

  std::array<std::byte, kFrameHead> head_{};
  size_t head_read_ = 0;
  Header header_{};
  size_t payload_size_ = 0;
  size_t payload_read_ = 0;
  Incoming *incoming_ = nullptr;  // not null: inside a payload
  bool peer_goodbye_ = false;
};

}  // namespace dicomm
