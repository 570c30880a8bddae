// Scratch: temporary memory of operations, and the pool that keeps it between them: touching fresh pages for
// the first time can cost several times what copying through them does, and a vendor's allocation more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace dicomm {

class ScratchPool;

// Where a pool gets its memory; may be called from any thread.
class ScratchSource {
 public:
  virtual ~ScratchSource() = default;
  virtual std::byte *allocate(uint64_t bytes) = 0;  // throws std::bad_alloc
  virtual void free(std::byte *data) = 0;
};

// Uninitialised memory, aligned for vector instructions; goes back to its pool at the end. Empty for 0 bytes.
class Scratch {
 public:
  Scratch() = default;
  Scratch(Scratch &&other) noexcept { swap(other); }
  Scratch &operator=(Scratch &&other) noexcept {
    Scratch taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~Scratch();
  std::byte *get() const { return data_; }
  explicit operator bool() const { return data_ != nullptr; }
  // Gives it back unless it is small.
  void trim() {
    if (pool_) *this = {};
  }

 private:
  friend class ScratchPool;
  void swap(Scratch &other) noexcept {
    std::swap(data_, other.data_);
    std::swap(capacity_, other.capacity_);
    std::swap(pool_, other.pool_);
  }

  std::byte *data_ = nullptr;
  uint64_t capacity_ = 0;
  std::shared_ptr<ScratchPool> pool_;  // null: small, straight from malloc
};

// Safe from any thread. Lives as long as there is Scratch of it.
class ScratchPool : public std::enable_shared_from_this<ScratchPool> {
 public:
  ScratchPool();  // of the host's memory
  // All of it from `source`, of which small pieces cost as much as large ones.
  explicit ScratchPool(std::unique_ptr<ScratchSource> source) : source_(std::move(source)), pooled_(1) {}
  ~ScratchPool();
  // Throws std::bad_alloc.
  Scratch take(uint64_t bytes);
  // The same, unless `scratch` is large enough already.
  void provide(Scratch &scratch, uint64_t bytes) {
    if (scratch.capacity_ < bytes) scratch = take(bytes);
  }

 private:
  friend class Scratch;
  // Below this malloc keeps memory itself.
  static constexpr uint64_t kPooled = 64 << 10;
  static constexpr uint64_t kKeep = 64 << 20;
  struct Idle {
    std::byte *data;
    uint64_t capacity;
  };
  void give(Idle memory);

  const std::unique_ptr<ScratchSource> source_;
  const uint64_t pooled_;
  std::mutex mutex_;
  std::vector<Idle> idle_;  // oldest first
  uint64_t kept_ = 0;
};

}  // namespace dicomm
