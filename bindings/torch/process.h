// What all groups of this process share: one dicomm context, and the memory of the names they used.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "completions.h"
#include "dicomm/dicomm.h"

namespace dicomm::torch_plugin {

struct Settings {
  std::string interface;
  std::string secret;
  uint32_t sockets_per_peer = 0;
  uint32_t log_level = 0;
  uint64_t eager_bytes = 0;
  int64_t spin_ns = -1;
  int64_t handshake_timeout_ns = 0;
  std::string algorithms;
  // Tells a restarted job from the dead one whose keys are still in the store.
  std::string attempt;
};

class Context {
 public:
  Context(const Settings &settings, const dicomm_chip *chip, const std::string &route_to);
  ~Context();  // may take about a second
  Context(const Context &) = delete;
  Context &operator=(const Context &) = delete;

  dicomm_context *handle() const { return handle_; }
  const std::shared_ptr<Completions> &completions() const { return completions_; }
  void after_fork();

 private:
  dicomm_context *handle_ = nullptr;
  std::shared_ptr<Completions> completions_ = std::make_shared<Completions>();
};

// One group's communicator. Every call but close() may run at the same time as any other; after close()
// they fail with DistBackendError.
class Comm {
 public:
  Comm(std::shared_ptr<Context> context, dicomm_comm *handle);
  ~Comm() { close(); }
  Comm(const Comm &) = delete;
  Comm &operator=(const Comm &) = delete;

  const std::shared_ptr<Completions> &completions() const { return context_->completions(); }
  dicomm_request *start(const dicomm_op &op);
  void set_timeout(int64_t timeout_ns);
  void abort(const std::string &reason);
  // Gives pending operations their time-out to finish.
  void close();

 private:
  std::shared_ptr<Context> context_;
  std::shared_mutex mutex_;  // exclusive: handle_ changes
  dicomm_comm *handle_;
};

class Process {
 public:
  explicit Process(Settings settings) : settings_(std::move(settings)) {}

  const Settings &settings() const { return settings_; }
  // For contexts made from now on. The struct must live as long as the process.
  void use_chip(const dicomm_chip *chip);
  // The context in use, or a new one that listens where `route_to` is reached. Lives as long as its groups.
  std::shared_ptr<Context> context(const std::string &route_to);
  // A prefix that no earlier group of this rank used at this place in the store.
  std::string prefix(const std::string &place, int rank);
  void add(const std::shared_ptr<Comm> &comm);
  void abort(const std::string &reason);
  // At exit: what is pending gets a few seconds, then every group is closed.
  void close();
  void after_fork();

 private:
  std::vector<std::shared_ptr<Comm>> live();

  const Settings settings_;
  std::mutex mutex_;
  const dicomm_chip *chip_ = nullptr;  // the host's processors
  std::weak_ptr<Context> context_;
  std::vector<std::weak_ptr<Comm>> comms_;
  std::map<std::string, int> generations_;
};

}  // namespace dicomm::torch_plugin
