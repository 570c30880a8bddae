// A verbs connection: messages over queue pairs while those work, over the authenticated socket otherwise;
// see transport/stream/connection.h.
//
// What carries the frames of one direction (frame.h):
//
//   nothing   until the first attempt to connect queue pairs has ended
//   link      since "change" was said; until a completion fails, the port goes down, or the peer leaves it
//   socket    after that, and until queue pairs work (again)
//
// Queue pairs belong to an epoch, and are spread over the ports that are up (rails.h). The side of the
// smaller id starts each: both make and connect them, each sends a probe over every one and says which
// arrived
// ("proven"). Frames change over as soon as both have proven the pair for frames and one for payloads; a pair
// that is proven later joins, one that is not is left out. When one side loses one that was proven, both
// close all of theirs, tell how many frames have come and which payloads are missing ("down"), and the rest
// goes over the socket at once: nothing is lost, doubled or overtaken. After a pause that doubles, a new
// epoch begins with half the frames under way. So one does, without harm to the old, when a port that it
// lacks may work again.
//
// Small messages are copied into frames. A large one is offered; the receiver grants a place, its destination
// registered (rdma-direct) or a staging buffer (rdma-staged), into which the sender writes. A payload in a
// chip's memory is always offered; what the card does not move of it passes through a bounce in host memory.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <list>
#include <optional>
#include <string>

#include "transport/chip_memory.h"
#include "transport/stream/message_connection.h"
#include "transport/verbs/link.h"
#include "transport/verbs/rails.h"
#include "transport/verbs/record_stream.h"
#include "transport/verbs/region_cache.h"

namespace dicomm {

// Of one peer, and of all of a transport.
struct VerbsCounters {
  uint64_t links = 0;      // epochs in which queue pairs were used
  uint64_t fallbacks = 0;  // from queue pairs that worked before
  uint64_t retries = 0;    // attempts after the first
  // Of large payloads as they are handed to a carrier: one that a failure cuts off counts again.
  uint64_t direct_bytes = 0, staged_bytes = 0, socket_bytes = 0;
  uint64_t chip_bytes = 0;  // of direct_bytes: from a chip's memory

  void add(const VerbsCounters &other);
  std::string members() const;  // of JSON, each preceded by a comma
};

class VerbsConnection;

// What all verbs connections of a transport share.
struct VerbsShared {
  VerbsSettings settings;
  Ports ports;
  StagingPool staging_out{ports, 16}, staging_in{ports, 16};
  RegionCache regions{ports, 4096, size_t{4} << 30};  // so many payloads of full size
  ChipReach chip;
  VerbsCounters closed;  // of connections that are no more
  std::function<void(const std::string &)> log;
  std::function<std::string(const ContextId &)> name_of;
  std::vector<VerbsConnection *> connections;  // open ones
};

class VerbsConnection final : public MessageConnection, private Poller, private RecordStream::Reader {
 public:
  VerbsConnection(StreamShared &shared, VerbsShared &verbs, Owner &owner, UniqueFd fd);
  ~VerbsConnection() override { close(); }
  Status open() override;
  void close() override;
  bool is_open() const override { return fd_.valid(); }
  void after_fork() override;
  const char *path() const override;
  const VerbsCounters &counted() const { return counters_; }
  std::string peer_counters() const override;
  bool carries(const ChipMemory &chip) const override;
  Sent send(Outgoing &message) override;
  void flush() override;
  Canceled cancel(Outgoing &message) override;
  void revoke(Incoming &into) override;
  uint64_t queued_bytes() const override { return 0; }  // one connection per peer: there is nothing to choose
  void say_goodbye() override;
  bool watch() override { return false; }
  void on_ready(uint32_t events) override;
  // What is lost with the port is noticed now, not at a time-out.
  void port_lost(uint32_t port, const std::string &why);
  void port_returned(uint32_t port);

 private:
  static constexpr Nanos kWidenPause = 60 * kSecond;
  static constexpr uint32_t kLeastDepth = 8;
  enum class Carrier { none, socket, link };
  enum class Stage { none, made, connected, used };  // of link_

  // Memory that a card may read or write for one payload: the message's own, or a staging buffer.
  struct Lent {
    Region region;
    Pinned *staging = nullptr;

    bool any() const { return region.valid() || staging != nullptr; }
    void give_back(StagingPool &pool) {
      region.reset();
      if (staging != nullptr) pool.give(std::exchange(staging, nullptr));
    }
  };
  struct Loss {  // of link_
    const char *event;
    std::string why;
    uint32_t cause;  // see Down
    bool memory;     // see Down
  };
  struct Out {  // an offer of ours
    enum { free, offered, granted, writing, streaming } state = free;
    Outgoing *message = nullptr;  // null: canceled
    std::vector<std::byte> copy;  // of a canceled one's payload
    ChipMemory::Bounce bounce;    // of one in a chip's memory, which was not sent from there
    bool fetching = false;        // the chip copies into it
    size_t size = 0;
    Grant grant{};
    Lent lent;
  };
  struct In {  // an offer of theirs
    enum { free, waiting, granted } state = free;
    Header header{};
    size_t size = 0;
    Incoming *into = nullptr;
    ChipMemory::Bounce bounce;  // for a chip's memory, where the card does not write to that
    Lent lent;
  };
  // A payload that comes over the socket. Its slot is free at once: when the sender has written it all, it
  // may offer another one under the number, and if messages have changed over that comes first.
  struct Streamed {
    uint32_t slot;
    Header header;
    size_t size;
    Incoming *into;
    ChipMemory::Bounce bounce;
  };
  struct Arrived {  // a payload that the chip copies from its bounce
    Header header;
    size_t size;
    Incoming *into;
  };

  bool poll() override;
  bool arm() override;
  void disarm() override {}
  bool meets_on(int) override { return false; }

  // connection.cc
  void want_output();
  bool parted() const;
  void end_of_stream(const Status &why);
  bool lend(Lent &lent, StagingPool &pool, uint32_t port, const std::byte *data, size_t bytes, int access);
  bool lend_chip(Lent &lent, uint32_t port, const std::byte *data, size_t bytes, int access);
  ChipMemory::Bounce bounce(ChipMemory &chip, size_t bytes);

  // connection_out.cc
  bool idle() const;
  bool window_open() const { return next_ - acked_ < window_; }
  std::byte *begin_frame(FrameKind kind, size_t bytes);
  void hand_over();
  bool put(Outgoing &message);
  bool put_rest();
  bool offer(Outgoing &message);
  bool write_queued();
  void write_granted();
  bool write(Out &out);
  const std::byte *payload_of(const Out &out) const;
  bool fetch(Out &out);
  void sent(Out &out);
  void acknowledge();
  void withdraw_grants(uint32_t pending);

  // connection_in.cc
  bool take_frame(const std::byte *frame, size_t bytes);
  bool on_frame(const FrameHead &head, const std::byte *body);
  bool begin_message(const std::byte *body, size_t bytes);
  bool more(const std::byte *body, size_t bytes);
  bool on_offer(const Offer &offer);
  bool on_grant(const Grant &grant);
  uint32_t next_pair();
  bool grant(uint32_t slot);
  void grant_waiting();
  bool complete(In &in);
  bool arrived(const Header &header, size_t size, Incoming *into, ChipMemory::Bounce bounce);
  void answer_goodbye();
  bool refuse(const std::string &what);
  bool on_record(const RecordHead &head, const std::byte *body) override;
  bool on_payload_begins(uint32_t slot, size_t bytes) override;
  std::byte *payload_destination() override;
  bool on_payload_ends() override;
  void on_payload_written(uint32_t slot) override;

  // connection_link.cc
  bool leads() const;
  bool usable() const { return link_ && !lost_; }  // the link, for posting
  bool giving_up() const { return our_down_.has_value() != their_down_.has_value(); }  // an epoch
  bool moves() const { return carrier_ == Carrier::socket || (carrier_ == Carrier::link && usable()); }
  void begin_attempt();
  void tell_setup(const Status &made);
  void attempt_failed(const std::string &why);
  void drop_link(const std::string &why, const char *event = "connection lost", uint32_t cause = kNoPair,
                 bool memory = false);
  void post_failed(int error, uint32_t pair);
  bool chip_under_way() const;
  uint32_t pending() const;
  void report_down();
  void on_setup(uint32_t epoch, const Setup &setup);
  void prove();
  void change_over_if_proven();
  void on_down(uint32_t epoch, const Down &down);
  void resume();
  bool receive_from_link();
  void retry_later();
  bool process_completions();
  void on_completion(const Completion &completion);
  template <class Match>
  bool await_completion(Match match);
  void log(const char *event, const std::string &text) const;
  Status make_link(std::vector<uint32_t> rails);

  // connection_ports.cc
  std::vector<Rail> rails_now() const;
  uint64_t all_pairs() const { return (uint64_t{1} << rails_.size()) - 1; }
  bool has_pair_over(uint32_t port) const {
    return std::find(rails_.begin(), rails_.end(), port) != rails_.end();
  }
  void proven(uint32_t pair);
  void not_proven(uint32_t pair, const std::string &why);
  void on_proven(uint64_t pairs);
  bool complete_link() const;
  void widen_later();
  void suspect(uint32_t cause);

  VerbsShared &verbs_;
  UniqueFd fd_;
  VerbsCounters counters_;
  RecordStream stream_{*this};
  bool output_wanted_ = false;
  bool polling_ = false;

  FrameMemory memory_;
  uint32_t window_ = 0;  // frames under way at most: as agreed with the peer
  uint32_t depth_ = 0;   // as we would have it
  std::unique_ptr<VerbsLink> link_;
  Stage stage_ = Stage::none;
  uint32_t epoch_ = 0;  // of link_, or of the last one
  std::deque<Completion> completions_;
  std::optional<Loss> lost_;                   // link_ is lost; its completions are still to be looked at
  std::vector<uint32_t> rails_;                // the port of each queue pair, of link_ or of the last
  uint64_t proven_ = 0, peer_proven_ = 0;      // a bit per queue pair whose probe has arrived
  uint64_t broken_ = 0;                        // and whose probe has failed
  bool returned_ = false;                      // a port that link_ lacks
  uint32_t suspects_ = 0;                      // a bit per port over which a queue pair failed last
  std::optional<Down> our_down_, their_down_;  // of this epoch
  std::vector<std::pair<uint32_t, uint32_t>> early_;  // frames (place, bytes) that came before "change"
  Reactor::Timer retry_{}, attempt_deadline_{};
  Nanos pause_ = 0;  // before the next attempt
  Nanos widen_pause_ = kWidenPause;
  Nanos used_since_ = 0;
  bool direct_;
  bool chip_direct_ = true;
  bool chip_was_under_way_ = false;                        // when link_ was lost
  std::shared_ptr<void> open_ = std::make_shared<char>();  // listens for the chip's copies

  Carrier carrier_ = Carrier::none;  // of what we send
  bool receives_from_link_ = false;
  uint32_t acked_ = 0, next_ = 0, handed_ = 0;  // frames: the peer has, we have numbered, the carrier has
  uint32_t over_socket_ = 0;  // so many frames had been handed over when the link became the carrier
  uint32_t received_ = 0, told_ = 0;
  Outgoing *current_ = nullptr;  // partly in frames
  std::vector<std::byte> rest_;  // of a canceled message
  size_t rest_put_ = 0;
  std::array<Out, kVerbsSlots> outs_;
  std::array<In, kVerbsSlots> ins_;
  std::list<Streamed> streaming_;
  std::list<Arrived> arrived_;
  // A bit per slot in that state, so that a poll need not look at all of them.
  uint32_t granted_ = 0;  // of outs_
  uint32_t waiting_ = 0;  // of ins_
  uint32_t next_pair_ = 0;
  enum class Goodbye { none, wanted, written, answered } goodbye_ = Goodbye::none;

  Incoming *incoming_ = nullptr;  // a message in frames
  ChipMemory::Bounce incoming_bounce_;
  Header header_{};
  size_t payload_size_ = 0, payload_read_ = 0;
  std::list<Streamed>::iterator streamed_;  // whose payload is being read
  bool peer_goodbye_ = false, goodbye_answered_ = false;
  std::optional<Status> ended_;  // how the stream did, while arrived_ goes on
};

// Waits for it among what completes, if only for a moment: the caller holds the engine lock. It stays to be
// processed. False: the card may still be at it.
template <class Match>
bool VerbsConnection::await_completion(Match match) {
  constexpr Nanos kMoment = 2 * kMillisecond;  // many times what a living network takes
  const Nanos deadline = deadline_after(kMoment);
  do {
    if (std::any_of(completions_.begin(), completions_.end(), match)) return true;
    if (!usable()) return false;
    link_->poll(completions_);
  } while (now() < deadline);
  return std::any_of(completions_.begin(), completions_.end(), match);
}

}  // namespace dicomm
