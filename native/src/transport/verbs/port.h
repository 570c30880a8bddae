// A port of an RDMA device that is open for use: its context, protection domain, completion channel and
// address.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/verbs/library.h"
#include "transport/verbs/settings.h"

namespace dicomm {

// Of a queue pair's port, for the peer; crosses the socket as it stands.
struct PortAddress {
  ibv::Gid gid{};
  uint16_t lid = 0;
  uint8_t mtu = 0;  // code: 1 for 256 .. 5 for 4096
  uint8_t infiniband = 0;
  uint32_t zero = 0;
};
static_assert(sizeof(PortAddress) == 24);

inline constexpr size_t kMaxPorts = 4;
// Access to memory that peers write into and we send from.
inline constexpr int kBothWays = ibv::access_local_write | ibv::access_remote_write;

class VerbsPort;
using Ports = std::vector<std::unique_ptr<VerbsPort>>;

class VerbsPort {
 public:
  // Of all active ports that `settings` allow the first kMaxPorts, in the order of the settings, but before
  // all others those whose GID is `address` (see choose_gid), for over that the peers are known to be
  // reached. NOT_SUPPORTED says why there is none, device by device.
  static Status open(const VerbsSettings &settings, const ibv::Gid &address, Ports &out);
  ~VerbsPort();
  VerbsPort(const VerbsPort &) = delete;

  const ibv::Functions &call() const { return library_->call; }
  ibv::Context *context() const { return context_; }
  ibv::Pd *pd() const { return pd_; }
  ibv::CompChannel *channel() const { return channel_; }
  const PortAddress &address() const { return address_; }
  uint8_t number() const { return number_; }
  int gid_index() const { return gid_index_; }
  std::string describe() const;  // "mlx5_0 port 1, GID 3 ::ffff:192.0.2.1"
  // May block while pages are pinned. Where too much is pinned already it asks for room, once. The failure
  // says what to do about a low RLIMIT_MEMLOCK.
  Status register_memory(void *data, size_t bytes, int access, ibv::Mr *&out) const;
  // Memory behind a dma-buf; `data` is what work requests will call its first byte.
  Status register_dmabuf(int fd, uint64_t offset, const void *data, size_t bytes, int access,
                         ibv::Mr *&out) const;
  void deregister(ibv::Mr *region) const;
  // `make_room` unpins what is not needed; false: there is no such thing.
  void on_shortage(std::function<bool()> make_room) { make_room_ = std::move(make_room); }
  // Whether its link is up, as far as the device has told.
  enum class State { up, down, failed };
  bool up() const { return state_ == State::up; }
  bool failed() const { return state_ == State::failed; }
  // Its interface may have got its address back in another place of the GID table. What is connected stays.
  void look_again(const VerbsSettings &settings, const ibv::Gid &address);
  // A device that has failed does not come back in this process.
  void set_state(State state) {
    if (state_ != State::failed) state_ = state;
  }
  // False in a forked child: the device and what was made of it are the parent's.
  bool usable() const { return context_ != nullptr; }
  void after_fork() { context_ = nullptr; }

 private:
  VerbsPort(std::shared_ptr<const VerbsLibrary> library, std::string name, uint8_t number)
      : library_(std::move(library)), name_(std::move(name)), number_(number) {}
  Status open(ibv::Device *device, const VerbsSettings &settings, const ibv::Gid &address);
  // With room made once, if that is what it lacks. False: errno tells.
  bool make(const std::function<ibv::Mr *()> &attempt, ibv::Mr *&out) const;
  Status choose_address(const VerbsSettings &settings, const ibv::Gid &address, const ibv::PortAttr &port);

  const std::shared_ptr<const VerbsLibrary> library_;
  const std::string name_;
  const uint8_t number_;
  ibv::Context *context_ = nullptr;
  ibv::Pd *pd_ = nullptr;
  ibv::CompChannel *channel_ = nullptr;
  PortAddress address_;
  int gid_index_ = -1;
  State state_ = State::up;
  std::function<bool()> make_room_;
};

}  // namespace dicomm
