// Communicator: an ordered set of ranks that issue operations in the same order.
//
// Failure is for ever and for all: the first reason wins, fails every active and later operation here, and is
// passed on to every rank this one has a connection to. Each rank is connected to its two neighbours in rank
// order from the start (the watch ring), so that a process that dies is noticed at once and the news reaches
// everybody. So is every reducer to every worker: who serves must hear when they leave.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "comm/context.h"
#include "comm/residuals.h"
#include "exec/arena.h"
#include "exec/collective.h"
#include "exec/point_to_point.h"
#include "path/libraries.h"
#include "path/rules.h"
#include "topology/topology.h"

namespace dicomm {

struct Planning;

class Communicator final : private ChannelOwner, private CollectiveOwner, private ArenaOwner {
 public:
  struct Setup {
    uint64_t id = 0;
    int rank = 0;
    std::vector<PeerAddress> peers;  // by rank
    Topology topology;
    std::string name;
    std::string algorithms;  // user rules
    std::optional<dicomm_dtype> wire;
    Nanos timeout = 0;
  };

  Communicator(Context &context, Setup setup);
  ~Communicator();
  // Joins the watch ring; returns when all neighbours have too.
  Status open(Nanos deadline);

  // Starts an operation. What is wrong with the arguments is found before anything is sent.
  Status start(const dicomm_op &op, Request *&out);
  // Collective; out stays null for a negative color.
  Status split(int32_t color, int32_t key, const dicomm_comm_options *options,
               std::unique_ptr<Communicator> &out);
  void set_timeout(Nanos timeout);
  void abort(const std::string &reason);
  void close();
  // Lock held: fails what is active, with a word to the peers, and says goodbye to them.
  void leave(const Status &why);
  // Ends what runs on the chip. Without the lock; after leave().
  void close_lane();
  std::string info();                              // JSON
  std::string name_of(const ContextId &id) const;  // as Context::name_of

  Context &context() { return context_; }
  int rank() const { return setup_.rank; }
  int size() const { return static_cast<int>(setup_.peers.size()); }

 private:
  static constexpr int64_t kHistory = 256;
  static constexpr Nanos kProbeAfter = 300 * kMillisecond;
  static constexpr Nanos kLaneGoodbye = 2 * kSecond;

  Status join_arena(Engine::Lock &lock, Nanos deadline);
  Status join_island(Nanos deadline);
  Status share_id(const std::vector<int> &members, Ccl &ccl, Nanos timeout, CclId &id);
  Status finish(const dicomm_op &op, uint64_t *bytes = nullptr);
  Status start_point_to_point(const dicomm_op &op, Nanos timeout, Request *&out);
  Status start_collective(const dicomm_op &op, Nanos timeout, Request *&out);
  void issue(Collective::Plan plan, Nanos timeout, Request *&out);
  Planning planning();
  Status start_serving(Request *&out);
  void serve_soon();
  void serve();
  void stop_serving(const Status &why);
  std::optional<std::pair<int, Fingerprint>> called(int64_t seq) const;
  Status join_call(int peer, const Fingerprint &theirs);
  void check_ahead(int64_t seq, const Fingerprint &mine);
  void launch(Request &request, Nanos timeout);
  Farewell farewell() const;
  void tell_end(int peer);
  void fail(const Status &why);
  void end(const Status &why);
  void probe();
  int64_t full_seq(uint32_t wire) const;
  Status mismatch(int rank, int64_t seq, const Fingerprint &mine, const Fingerprint &theirs) const;
  std::vector<int> neighbours() const;

  void on_hello(int rank) override;
  void on_bye(int rank) override;
  void on_peer_lost(int rank, const Status &why) override;
  void on_remote_failure(int rank, dicomm_status code, const std::string &text, const Wire &wire) override;
  bool on_fingerprint(int rank, uint32_t seq, const Fingerprint &theirs) override;
  void on_probe(int rank, uint32_t seq, const Fingerprint &theirs) override;
  void on_collective_failed(const Status &why) override { fail(why); }
  std::string describe_rank(int rank) const override;
  void on_other_call(int rank, int64_t seq, const Fingerprint &mine, const Fingerprint &theirs) override;
  void wake(int rank) override;

  Context &context_;
  Engine &engine_;
  Messenger &messenger_;
  Setup setup_;
  Rules rules_;
  LibrarySet libraries_;
  const int workers_;  // ranks that are no reducers
  ProgramCache programs_;
  Residuals residuals_;
  const std::shared_ptr<Spares<PointToPoint>> pair_spares_ = std::make_shared<Spares<PointToPoint>>();
  std::unique_ptr<ChipLane> lane_;  // null: the rank has no chip
  std::unique_ptr<Arena> arena_;    // null: the ranks share no memory
  Channel *channel_ = nullptr;
  Status failed_;
  std::set<int> hellos_;
  std::set<int> told_;  // farewell()
  int64_t next_seq_ = 0;
  std::array<Fingerprint, kHistory> history_{};           // by seq modulo kHistory
  std::map<int, std::pair<int64_t, Fingerprint>> ahead_;  // probes for collectives not started here, by rank
  Request *serving_ = nullptr;                            // of a reducer
  bool serve_posted_ = false;                             // a task will look what there is to serve
  uint64_t splits_ = 0;
  bool left_well_ = false;   // nothing was pending nor had failed
  bool probing_ = false;     // a timer is set
  bool suspicious_ = false;  // the island's library has failed
  Reactor::Timer probe_timer_{};
};

}  // namespace dicomm
