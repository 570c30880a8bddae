// Collective: the Request that runs a Schedule. Sends and decides nothing of its own: what the schedule says,
// when its dependencies are done.
#pragma once

#include <memory>
#include <vector>

#include "device/host/kernels.h"
#include "exec/arena.h"
#include "exec/blocks.h"
#include "exec/lane.h"
#include "exec/program.h"
#include "exec/scratch.h"
#include "p2p/messenger.h"
#include "progress/engine.h"

namespace dicomm {

// The communicator, to which a failed collective is fatal.
class CollectiveOwner {
 public:
  virtual void on_collective_failed(const Status &why) = 0;  // fails all active requests, this one too
  virtual std::string describe_rank(int rank) const = 0;     // "rank 3 (host b)"

 protected:
  ~CollectiveOwner() = default;
};

class Collective final : public Request, private TransferOwner, private ChipTaskOwner, private ArenaUser {
 public:
  // What a schedule on a chip needs beside the caller's buffers.
  struct ChipMemory {
    Scratch input, output;  // on the chip, in one run, where the caller's are not
    Scratch carried;        // on the host, on the way there and back, where the caller's are the host's
    Scratch chip_acc, chip_stage;                 // on the chip
    Scratch acc, stage, host_input, host_output;  // on the host
  };
  struct Plan {
    dicomm_opcode opcode;
    int64_t seq;
    std::shared_ptr<const Program> program;
    Arithmetic arithmetic;
    bool reducing = false;
    Fingerprint fingerprint;
    BlockList input, output;
    uint64_t bytes = 0;        // of the larger; on a reducer, which has none, of the others'
    bool stage_input = false;  // input shares memory with output in a way the schedule does not allow for
    std::optional<dicomm_dtype> wire;   // the encoding of what crosses
    std::shared_ptr<float[]> residual;  // what it lost before
    bool on_chip = false;               // the buffers are the chip's memory
    void *stream = nullptr;             // the work behind which the buffers are filled
    std::unique_ptr<ChipMemory> chip;   // null: the schedule is the host's alone
  };
  struct Place {  // where it runs; outlives it
    Engine &engine;
    Messenger &messenger;
    Channel &channel;
    CollectiveOwner &owner;
    ScratchPool &memory;
    Chip *chip = nullptr;  // null: the rank has none
    ChipLane *lane = nullptr;
    Arena *arena = nullptr;  // null: the ranks share no memory
  };
  // Without the engine lock, before make(): what plan.program needs of the chip. Throws std::bad_alloc.
  static void take_chip_memory(Chip &chip, Plan &plan);
  // A new one, or one that has run the program before. Allocates everything the schedule needs; throws
  // std::bad_alloc.
  static Collective *make(const Place &place, Plan &&plan);

  void start();  // lock held; the request may be done on return
  void fail(const Status &why) override;
  void give_up(const Status &why) override;
  std::string waiting_for() const override;
  bool needs(int rank, bool gone) const override;
  // The ranks it waits for now.
  std::vector<int> awaited() const;
  std::vector<int> probed;  // the communicator's note: ranks it has asked what they are doing
  const Fingerprint &fingerprint() const { return plan_.fingerprint; }

 private:
  friend class Spares<Collective>;
  Collective(const Place &place, const Plan &plan);
  void prepare(Plan &&plan);
  void dispose() override;

  void on_sent(SendTask &task, const Status &status) override;
  void on_received(RecvTask &task, const Status &status) override;
  void ended(uint32_t step, const Status &status, int peer);
  void run();
  std::optional<Status> begin(uint32_t step);
  void settle(uint32_t step);  // a step has completed: its dependents may start
  void finish();
  void take_memory();
  void release_memory();

  // collective_arena.cc
  bool in_arena() const { return plan_.program->in_arena; }
  bool carried(const Span &span) const {
    return in_arena() && bytes_of(span) <= most_in_arena(static_cast<int>(place_.channel.peers.size()));
  }
  std::optional<Status> begin_carried(uint32_t step);
  bool awaits_turn() const { return in_arena() && !place_.arena->posted(turn_); }
  void arena_changed() override;
  int awaited_rank() const override;
  void post();
  void take_arrived();
  void take(uint32_t step);
  void leave_arena();

  // collective_chip.cc
  bool on_chip() const { return plan_.program->schedule.on_chip; }
  void use_chip_memory();
  Status begin_on_chip();
  Status pack_on_chip();
  Status join_buffers(Stream &stream);
  Status unpack_on_chip();
  std::optional<Status> begin_chip_step(uint32_t step);
  Status call(const Step &step, Stream &stream, CclGroup &group) const;
  Status compute(const Step &step, Stream &stream) const;
  Status run_on_lane(const ChipTask &task, Stream &stream, CclGroup *group) override;
  void on_chip_done(ChipTask &task, const Status &status) override;
  void blame_library(const Status &why);
  void forget_blame();
  void end_when_idle(const Status &why);

  std::byte *address(const Span &span) const;
  uint64_t bytes_of(const Span &span) const;
  Form form(const Span &span) const;
  Status describe(const Status &why) const;

  const Place place_;
  Plan plan_;
  std::byte *input_ = nullptr;
  std::byte *output_ = nullptr;
  Scratch packed_input_, packed_output_, acc_, stage_, wire_;
  size_t element_ = 0, wide_ = 0;
  std::vector<uint32_t> missing_;  // per step: dependencies that have not completed
  std::vector<SendTask> sends_;
  std::vector<RecvTask> receives_;
  std::vector<uint32_t> ready_;
  static constexpr uint64_t kNoTurn = UINT64_MAX;
  uint64_t turn_ = kNoTurn;         // in the arena
  std::vector<uint32_t> posting_;   // sends that wait for the turn
  std::vector<uint32_t> arriving_;  // receives whose sender is not known to have posted it
  size_t left_ = 0;
  bool running_ = false;

  static constexpr Nanos kChipPatience = 5 * kSecond;  // for work of a chip that nothing more is heard of
  std::vector<ChipTask> chip_tasks_;                   // and one more: unpacking
  size_t under_way_ = 0;                               // chip tasks
  Status ending_;                                      // how it will have ended when none is
  Reactor::Timer patience_{};
  static constexpr Nanos kBlame = 250 * kMillisecond;
  bool blamed_ = false;
  Reactor::Timer blame_{};
};

}  // namespace dicomm
