// What all groups of this process share: one dicomm context, and the memory of the names they used.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

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
  std::string paths;
  std::string rdma;
  std::string algorithms;
  int32_t wire_dtype = 0;  // 0: none
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
  std::string info();  // as dicomm_comm_info
  void set_timeout(int64_t timeout_ns);
  void abort(const std::string &reason);
  // Gives pending operations their time-out to finish.
  void close();

 private:
  std::shared_ptr<Context> context_;
  std::shared_mutex mutex_;  // exclusive: handle_ changes
  dicomm_comm *handle_;
};

// What this process's rank computes on. The native part lives as long as the process.
struct ChipChoice {
  const dicomm_chip *native = nullptr;  // the host's processors
  std::optional<c10::Device> device;    // whose tensors are in the chip's memory
};

// A group, as the vendor's backend for it is made from.
struct GroupFacts {
  c10::intrusive_ptr<c10d::Store> store;  // a place of its own
  int rank;
  int size;
  std::chrono::milliseconds timeout;
  std::string name;
  std::vector<uint64_t> global_ranks;
  std::function<std::string()> info;  // as dicomm_comm_info
};
// The vendor's own backend for a group that is one island, and the device type whose tensors are its; else
// null.
struct VendorBackend {
  c10::intrusive_ptr<c10d::Backend> backend;
  c10::DeviceType type = c10::DeviceType::CPU;
};
using MakeVendorBackend = std::function<VendorBackend(const GroupFacts &)>;

class Process {
 public:
  explicit Process(Settings settings) : settings_(std::move(settings)) {}

  const Settings &settings() const { return settings_; }
  // For groups and contexts made from now on.
  void use_chip(ChipChoice chip);
  std::optional<c10::Device> chip_device();
  // Called with every new group, on the thread that makes it.
  void use_vendor_backends(MakeVendorBackend make) { make_vendor_backend_ = std::move(make); }
  VendorBackend vendor_backend(const GroupFacts &group) const {
    return make_vendor_backend_ ? make_vendor_backend_(group) : VendorBackend{};
  }
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
  ChipChoice chip_;
  MakeVendorBackend make_vendor_backend_;
  std::weak_ptr<Context> context_;
  std::vector<std::weak_ptr<Comm>> comms_;
  std::map<std::string, int> generations_;
};

}  // namespace dicomm::torch_plugin
