// A shm connection: messages through shared memory; see transport/stream/connection.h.
//
// The socket on which the two met carries the segment (from the side of the smaller id), then single bytes
// that wake a sleeping side or come with a descriptor that is handed over, and by its end tells at once that
// the other process is gone.
//
// A ring carries frames, one after another. Each begins with a u64, the payload's size, and the 64 bytes of
// the header.
//
// - The payload follows: small ones, and all where fetching is impossible. Longer than the ring, it streams
// through.
// - The size carries kFetch, and the u64 number of a slot follows: the reader fetches the payload from our
// memory.
// - The u64 is kGoodbye: no header, and nothing follows.
//
// Fetching (process_vm_readv) copies once. Whether the kernel lets the peer do it (ptrace rules, containers)
// is tried when the segment is mapped, never assumed.
#pragma once

#include <array>
#include <deque>
#include <vector>

#include "transport/shm/segment.h"
#include "transport/stream/message_connection.h"

namespace dicomm {

class ShmConnection final : public MessageConnection, private Poller {
 public:
  ShmConnection(StreamShared &shared, Owner &owner, UniqueFd fd, bool may_fetch);
  ~ShmConnection() override { close(); }
  Status open() override;
  void close() override;
  bool is_open() const override { return fd_.valid(); }
  void after_fork() override;
  Sent send(Outgoing &message) override;
  void flush() override;
  Canceled cancel(Outgoing &message) override;
  uint64_t queued_bytes() const override { return 0; }  // one connection per peer: there is nothing to choose
  void say_goodbye() override;
  Status hand_over(int fd) override;
  UniqueFd take_handed() override;
  bool watch() override { return false; }  // the kernel ends the socket with the peer's process
  void on_ready(uint32_t events) override;

 private:
  struct Fetch {                  // a slot of ours that is in use
    Outgoing *message = nullptr;  // null: canceled
    std::vector<std::byte> copy;
    bool used = false;
  };

  bool poll() override;
  bool arm() override;
  void disarm() override;
  bool meets_on(int core) override;

  Status take_segment();
  void begin();
  bool read_socket();

  // connection_write.cc
  bool idle() const { return current_ == nullptr && rest_.empty() && control_.empty() && bulk_.empty(); }
  uint64_t room() const;
  size_t put(const void *data, size_t size);
  bool write(Outgoing &message);
  bool fetchable(const Outgoing &message) const { return message.size >= kFetchBytes && peer_fetches_; }
  int take_slot(Outgoing &message);
  bool write_queued();
  bool reclaim();
  void await_reader(SharedSlot &slot);
  void take_back_offers();
  void publish();
  void wake_peer();

  // connection_read.cc
  void look();
  bool read(size_t budget);
  uint64_t available() const { return seen_tail_ - head_; }
  void get(void *into, size_t size);
  bool begin_payload();
  bool read_payload();
  bool fetch();
  void end_payload();
  void try_fetching();
  bool parted() const;
  void end_of_stream();

  // Below this a copy through the ring is as fast as the system call.
  static constexpr size_t kFetchBytes = 96 << 10;
  static constexpr uint64_t kFetch = uint64_t{1} << 62;
  static constexpr uint64_t kGoodbye = ~uint64_t{0};
  static constexpr size_t kFrameHead = sizeof(uint64_t) + kHeaderBytes;
  static constexpr size_t kBudget = size_t{4} << 20;
  static constexpr size_t kMostHanded = 64;  // that nobody has taken yet

  UniqueFd fd_;
  Segment segment_;
  int side_ = 0;  // ours in the segment
  bool ready_ = false;
  bool closed_socket_ = false;   // the peer's end
  std::deque<UniqueFd> handed_;  // by the peer
  bool polling_ = false;

  Outgoing *current_ = nullptr;  // partly written
  std::vector<std::byte> rest_;  // of a canceled message, or the goodbye
  size_t rest_written_ = 0;
  std::array<Fetch, kSlots> fetches_;
  uint32_t fetching_ = 0;
  uint64_t tail_ = 0;       // our ring: written up to
  uint64_t published_ = 0;  // ... and told
  uint64_t seen_head_ = 0;
  bool peer_fetches_ = false;
  enum class Goodbye { none, wanted, writing, written } goodbye_ = Goodbye::none;

  pid_t peer_pid_ = 0;
  uint64_t cookie_ = 0;
  bool tried_;
  uint64_t head_ = 0;  // the peer's ring: read up to
  uint64_t seen_tail_ = 0;
  bool in_payload_ = false;
  bool fetch_ = false;
  Header header_{};
  size_t payload_size_ = 0;
  size_t payload_read_ = 0;
  Incoming *incoming_ = nullptr;
  bool peer_goodbye_ = false;
};

}  // namespace dicomm
