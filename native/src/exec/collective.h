// Collective: the Request that runs a Schedule. Sends and decides nothing of its own: what the schedule says,
// when its dependencies are done.
#pragma once

#include <vector>

#include "device/host/kernels.h"
#include "exec/blocks.h"
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

class Collective final : public Request, private TransferOwner {
 public:
  struct Plan {
    dicomm_opcode opcode;
    int64_t seq;
    std::shared_ptr<const Program> program;
    Arithmetic arithmetic;
    bool reducing = false;
    Fingerprint fingerprint;
    BlockList input, output;
    bool stage_input = false;  // input shares memory with output in a way the schedule does not allow for
  };
  struct Place {  // where it runs; outlives it
    Engine &engine;
    Messenger &messenger;
    Channel &channel;
    CollectiveOwner &owner;
    ScratchPool &memory;
  };
  // A new one, or one that has run the program before. Allocates everything the schedule needs; throws
  // std::bad_alloc.
  static Collective *make(const Place &place, Plan plan);

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
  void prepare(Plan plan);
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

  std::byte *address(const Span &span) const;
  uint64_t bytes_of(const Span &span) const;
  Form form(const Span &span) const;
  Status describe(const Status &why) const;

  const Place place_;
  Plan plan_;
  std::byte *input_ = nullptr;
  std::byte *output_ = nullptr;
  Scratch packed_input_, packed_output_, acc_, stage_;
  size_t element_ = 0, wide_ = 0;
  std::vector<uint32_t> missing_;  // per step: dependencies that have not completed
  std::vector<SendTask> sends_;
  std::vector<RecvTask> receives_;
  std::vector<uint32_t> ready_;
  size_t left_ = 0;
  bool running_ = false;
};

}  // namespace dicomm
