// Registered memory of our own: frames of a connection, and staging buffers.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "transport/verbs/frame.h"

namespace dicomm {

// Memory of our own, on whole pages, registered with every port as it is needed.
class Pinned {
 public:
  Pinned() = default;
  ~Pinned();
  Pinned(const Pinned &) = delete;
  Status allocate(size_t bytes);
  Status register_with(const VerbsPort &port, size_t index);
  std::byte *data() const { return data_; }
  const ibv::Mr *region(size_t index) const { return regions_[index]; }

 private:
  std::byte *data_ = nullptr;
  size_t bytes_ = 0;
  std::array<ibv::Mr *, kMaxPorts> regions_{};
  std::array<const VerbsPort *, kMaxPorts> ports_{};
};

// The frames of one connection: `depth` to send, one of acknowledgements, and places to receive into.
class FrameMemory {
 public:
  static constexpr uint32_t kSpare = 8;  // places for what is not numbered
  Status allocate(uint32_t depth);
  Status register_with(const VerbsPort &port, size_t index) { return pinned_.register_with(port, index); }
  std::byte *outgoing(uint32_t number) const { return at(number % depth_); }
  std::byte *ack() const { return at(depth_); }
  std::byte *place(uint32_t index) const { return at(depth_ + 1 + index); }
  uint32_t places() const { return depth_ + kSpare; }
  uint32_t depth() const { return depth_; }
  uint32_t lkey(size_t port) const { return pinned_.region(port)->lkey; }

 private:
  std::byte *at(size_t index) const { return pinned_.data() + index * kVerbsFrameBytes; }
  Pinned pinned_;
  uint32_t depth_ = 0;
};

// Staging buffers of kVerbsMaxPayload bytes, made when first needed, at most `most`.
class StagingPool {
 public:
  StagingPool(const Ports &ports, size_t most) : ports_(ports), most_(most) {}
  // Registered with the port. Null in `out` and no failure: all are in use, and `returned` will tell of the
  // next.
  Status take(size_t port, Pinned *&out);
  void give(Pinned *buffer) {
    idle_.push_back(buffer);
    if (std::exchange(awaited_, false) && returned_) returned_();
  }
  void on_return(std::function<void()> returned) { returned_ = std::move(returned); }
  void clear() {
    idle_.clear();
    all_.clear();
  }

 private:
  const Ports &ports_;
  const size_t most_;
  std::vector<std::unique_ptr<Pinned>> all_;
  std::vector<Pinned *> idle_;
  bool awaited_ = false;
  std::function<void()> returned_;
};

}  // namespace dicomm
