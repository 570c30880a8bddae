// The queue pairs between two processes, of one epoch: one for frames, others for large payloads.
//
// Its life: made -> connected -> closed. Nothing blocks but close(), which waits a moment until the card has
// let go of all memory.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "transport/verbs/frame.h"
#include "transport/verbs/memory.h"

namespace dicomm {

// What a completion was for; travels in wr_id.
enum class Work : uint32_t { frame = 1, write, probe, receive, bulk_receive, drain };

struct Completion {
  Work work;
  uint32_t index;  // of a receive: the frame's place; of a write: the slot
  int status;      // ibv_wc_status
  uint32_t pair;   // of one that failed, if that is known
  uint32_t bytes;
  bool with_slot;  // a payload has come for slot `imm`
  uint32_t imm;
};

inline constexpr uint32_t kProbe = 0xffffffff;  // in place of a slot

class VerbsLink {
 public:
  // A queue pair over each of these of the ports: the first for frames, which receives into `memory`, the
  // others for large payloads.
  static Status make(const Ports &ports, const std::vector<uint32_t> &rails, const FrameMemory &memory,
                     const VerbsSettings &settings, std::unique_ptr<VerbsLink> &out);
  ~VerbsLink();
  VerbsLink(const VerbsLink &) = delete;

  Setup setup(uint32_t depth) const;
  Status connect(const Setup &peer);
  uint32_t pairs() const { return static_cast<uint32_t>(pairs_.size()); }

  // Each an errno; 0: a completion will tell. ENOMEM: the queue is full now.
  int send_frame(const std::byte *frame, size_t bytes);  // of `memory`
  int write(const Grant &grant, const std::byte *data, size_t bytes, uint32_t lkey);
  int probe();  // one on every queue pair
  int receive_frame(uint32_t place);
  int receive_payload(uint32_t pair);

  // Appends what has completed.
  void poll(std::deque<Completion> &out);
  // From the next completion on the ports' channels are readable.
  void arm();
  void disarm() { armed_ = false; }
  // The cards touch no memory from here on, and all that completed before is in `out`.
  void close(std::deque<Completion> &out);

 private:
  struct Pair {
    uint32_t port;
    ibv::Qp *qp;
    uint32_t psn;
  };

  VerbsLink(const Ports &ports, const FrameMemory &memory, const VerbsSettings &settings)
      : ports_(ports), memory_(memory), settings_(settings) {}
  uint32_t pair_of(uint32_t port, uint32_t number) const;
  Status make_queue(uint32_t port, int capacity);
  Status make_pair(uint32_t port, uint32_t sends, uint32_t receives);
  Status connect(const Pair &pair, const PortAddress &port, const QueuePairAddress &address, uint8_t mtu);
  int post(uint32_t pair, ibv::SendWr &request);
  int post(uint32_t pair, Work work, uint32_t index, ibv::Sge *where);

  const Ports &ports_;
  const FrameMemory &memory_;
  const VerbsSettings &settings_;
  std::array<ibv::Cq *, kMaxPorts> queues_{};  // by port
  std::vector<Pair> pairs_;                    // the first is for frames
  uint32_t inline_bytes_ = 0;
  bool armed_ = false;
};

}  // namespace dicomm
