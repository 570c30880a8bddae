// One authenticated socket to a peer: cuts the byte stream into messages, both ways.
//
// Sends leave at once while the socket takes them; else they wait in two queues, of which control goes first,
// so that a small message does not stand behind large ones. Within a queue the order is that of the sends.
#pragma once

#include <sys/uio.h>

#include <array>

#include "base/unique_fd.h"
#include "transport/tcp/queue.h"
#include "transport/tcp/shared.h"

namespace dicomm {

class Connection final : public FdHandler {
 public:
  class Owner {
   public:
    virtual Endpoint &endpoint() = 0;
    // The peer hung up as agreed; this connection is closed. Must not destroy it before the callback returns.
    virtual void ended(Connection &connection) = 0;
    // It is unusable; the owner closes it.
    virtual void broke(const Status &why) = 0;

   protected:
    ~Owner() = default;
  };
  enum class Canceled { unknown, unsent, partly };

  Connection(TcpShared &shared, Owner &owner, UniqueFd fd);
  ~Connection() { close(); }
  Status open();
  void close();
  bool is_open() const { return fd_.valid(); }
  void after_fork() { fd_.reset(); }

  Sent send(Outgoing &message);
  // For messages that waited for the connection: queues without sending; then flush.
  void enqueue(Outgoing &message);
  void flush();  // from inside dispatch only
  Canceled cancel(Outgoing &message);
  uint64_t queued_bytes() const { return queued_bytes_; }
  // Behind what is queued. The connection ends when the peer hangs up.
  void say_goodbye();
  // False: nothing is under way that its host has not acknowledged. Tells the owner when the host is silent.
  bool watch();

  void on_ready(uint32_t events) override;

 private:
  struct Batch;

  bool idle() const { return !current_ && rest_.empty() && control_.empty() && bulk_.empty(); }
  void fill(Batch &batch);
  void settle(size_t written);
  bool write(Batch &batch, size_t &written);
  void want_output(bool wanted);
  bool flush_once(size_t &written);
  void report_sent();

  void receive();
  void end_of_stream();
  bool parse(const std::byte *bytes, size_t count);
  bool begin_payload();
  void end_payload();
  void fail(Status why);

  TcpShared &shared_;
  Owner &owner_;
  UniqueFd fd_;
  bool output_wanted_ = false;
  bool input_wanted_ = true;

  MessageQueue control_;
  MessageQueue bulk_;
  Outgoing *current_ = nullptr;  // partly written
  std::vector<std::byte> rest_;  // of a canceled message, or the goodbye
  size_t rest_written_ = 0;
  MessageQueue sent_;  // on_sent is due
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
