// PointToPoint: the Request of one send or receive.
#pragma once

#include <deque>

#include "exec/blocks.h"
#include "exec/chip.h"
#include "exec/scratch.h"
#include "p2p/messenger.h"
#include "progress/engine.h"
#include "progress/spares.h"

namespace dicomm {

class PointToPoint final : public Request, private TransferOwner, private ChipTaskOwner {
 public:
  struct Place {  // where it runs; outlives it, but for `spares`, which each request holds
    Engine &engine;
    Messenger &messenger;
    Channel &channel;
    ScratchPool &memory;
    std::shared_ptr<Spares<PointToPoint>> spares;
    Chip *chip = nullptr;    // the rank's
    bool on_chip = false;    // the buffer is the chip's memory
    void *stream = nullptr;  // the work behind which it is filled, or free
  };
  // `peer` may be ANY_SOURCE for a receive. Throws std::bad_alloc. A buffer on a chip is sent from there, and
  // received there from a peer that is named, if that is long and the endpoint carries it; else it passes
  // through the host's memory.
  static PointToPoint *make(const Place &place, dicomm_opcode opcode, int peer, uint64_t tag,
                            dicomm_dtype dtype, BlockList blocks);

  void start();  // lock held; the request may be done on return
  void fail(const Status &why) override;
  bool cancel() override;
  std::string waiting_for() const override;
  bool needs(int rank, bool gone) const override;

 private:
  friend class Spares<PointToPoint>;
  explicit PointToPoint(const Place &place)
      : Request(DICOMM_SEND, 0),
        engine_(place.engine),
        messenger_(place.messenger),
        channel_(place.channel) {}
  void prepare(const Place &place, int peer, uint64_t tag, dicomm_dtype dtype, BlockList blocks);
  void dispose() override;

  void on_sent(SendTask &task, const Status &status) override;
  void on_received(RecvTask &task, const Status &status) override;
  void on_part(RecvTask &task, uint64_t offset, uint64_t size, bool on_chip) override;
  void on_matched(RecvTask &task) override;
  std::byte *host_memory(RecvTask &task) override;
  std::byte *pinned(uint64_t size);
  void fetch();
  void send();
  void on_start(const Status &status);
  void receive_on_chip();
  void carry(uint64_t offset, uint64_t size);
  void end(const Status &status);
  void complete(const Status &status);
  Status run_on_lane(const ChipTask &, Stream &, CclGroup *) override { return {}; }  // it has no lane
  void on_chip_done(ChipTask &task, const Status &status) override;
  // Parts of a long message are copied from and to the chip while others are under way.
  static constexpr uint64_t kPart = 1 << 20;
  bool copied() const { return on_chip_ && blocks_.contiguous(); }
  bool in_parts() const { return copied() && bytes > kPart; }
  bool chip_may_be_used() const;
  // What a ChipTask of ours is.
  enum class Kind : uint32_t {
    copy,   // of `bytes`, from or to the chip
    start,  // no copy: the work is over that makes what is sent, or that uses what is received into
    finish  // no copy: those that an endpoint had begun are over
  };
  ChipTask &task(Kind kind);
  bool sending() const { return opcode == DICOMM_SEND; }
  Status describe(const Status &why) const;

  Engine &engine_;
  Messenger &messenger_;
  Channel &channel_;
  std::shared_ptr<Spares<PointToPoint>> spares_;  // null while it is spare
  BlockList blocks_;
  Scratch packed_;
  SendTask send_;
  RecvTask receive_;
  Chip *chip_ = nullptr;
  bool on_chip_ = false;
  std::deque<ChipTask> tasks_;  // in their order; `index` is the Kind
  size_t copying_ = 0;          // of them, neither done nor a start
  bool starting_ = false;       // a start is not done
  bool by_card_ = false;        // a card may have written to the chip
  bool matched_ = false;
  uint64_t carried_ = 0;          // bytes of a receive there, or on their way to the chip
  std::optional<Status> ending_;  // how it will have ended when the copies have
};

}  // namespace dicomm
