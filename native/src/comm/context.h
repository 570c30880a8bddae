// Context: what one process has once, for all its communicators: engine, messenger, transports, listener.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ccl/ccl.h"
#include "comm/chip.h"
#include "exec/chip.h"
#include "exec/scratch.h"
#include "p2p/messenger.h"
#include "progress/engine.h"
#include "transport/registry.h"

namespace dicomm {

class Communicator;

struct ContextOptions {
  std::string interface;
  std::string route_to;
  std::string paths;
  std::string rdma;
  std::vector<std::byte> secret;
  uint32_t sockets_per_peer = 1;
  uint32_t log_level = 2;
  uint64_t eager_bytes = 64 << 10;
  Nanos spin = -1;  // -1: kSpin
  Nanos handshake_timeout = 5 * kSecond;
  ChipOptions chip;
};

class Context {
 public:
  explicit Context(ContextOptions options);
  ~Context();
  Status open();
  // See dicomm_context_close.
  void close();
  void after_fork();
  bool forked() const { return engine_.forked(); }
  bool closed() const { return closed_; }

  Engine &engine() { return engine_; }
  Messenger &messenger() { return messenger_; }
  ScratchPool &scratch() { return *scratch_; }
  const PeerAddress &self() const { return self_; }
  // What this process says of its host and chip to the ranks it meets.
  const RankInfo &rank_info() const { return rank_info_; }
  Chip *chip() { return chip_.get(); }  // null: the host's processors
  Ccl *ccl() { return ccl_.get(); }     // null: the chip's vendor has none
  const ContextOptions &options() const { return options_; }
  // The key to a peer's listener: from the job's secret, else what the peer published.
  Key key_for(const ContextId &id, const Key &published) const;
  bool has_secret() const { return !options_.secret.empty(); }
  void log(uint32_t level, const std::string &line) const;  // one line on stderr
  // Lock held: "rank 3 alpha@host1", as the first communicator knows it that has the process; "" if none
  // does.
  std::string name_of(const ContextId &id) const;
  // Told how many ranks of a communicator share this host's cores.
  void share_host(int ranks);
  std::string info();  // JSON

  // Lock held: communicators register while they live, so that close() can end them.
  void add(Communicator &comm) { comms_.push_back(&comm); }
  void remove(Communicator &comm) { std::erase(comms_, &comm); }

 private:
  // A wake-up costs tens of microseconds where cores sleep deeply (virtual machines), so pairs that answer
  // within that should not sleep.
  static constexpr Nanos kSpin = 500 * kMicrosecond;
  static constexpr Nanos kGoodbye = kSecond;

  const ContextOptions options_;
  Engine engine_;
  Messenger messenger_;
  const std::shared_ptr<ScratchPool> scratch_ = std::make_shared<ScratchPool>();
  Transports transports_;
  std::unique_ptr<Chip> chip_;
  std::unique_ptr<Ccl> ccl_;
  PeerAddress self_;
  RankInfo rank_info_;
  std::vector<Communicator *> comms_;
  bool closed_ = false;
};

// Lower-case hexadecimal, for logs and JSON.
std::string hex(const ContextId &id);

}  // namespace dicomm
