// A chip whose memory the processors cannot touch: pages of a file that are mapped without access at the
// addresses it gives out, and a second time, for the chip alone, where its copies find them. Network cards
// reach it through a dma-buf, which is that file.
#pragma once

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <map>
#include <utility>

#include "base/unique_fd.h"
#include "progress/reactor.h"
#include "transport/chip_memory.h"

namespace dicomm::test {

class HiddenDevice final : public Device {
 public:
  static constexpr size_t kBytes = size_t{512} << 20;

  explicit HiddenDevice(bool exports)
      : exports_(exports), file_(make_file()), given_(map(PROT_NONE)), inside_(map(PROT_READ | PROT_WRITE)) {}
  ~HiddenDevice() override {
    ::munmap(given_, kBytes);
    ::munmap(inside_, kBytes);
  }
  // Where the chip itself finds it.
  std::byte *inside(const void *data) const {
    return inside_ + (static_cast<const std::byte *>(data) - given_);
  }

  const char *vendor() const override { return "hidden"; }
  int index() const override { return 0; }
  std::string describe() const override { return "a chip with memory of its own"; }
  DeviceCapabilities capabilities() const override {
    return {.exports_dmabuf = exports_, .sees_card_writes = true};
  }
  Status allocate(size_t bytes, std::unique_ptr<Allocation> &out) override {
    REQUIRE(used_ + bytes <= kBytes);
    out = std::make_unique<Memory>(given_ + used_, bytes);
    numbers_[given_ + used_] = ++allocations_;
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return {};
  }
  Status allocate_pinned(size_t, std::unique_ptr<Allocation> &) override { return unsupported(); }
  bool owns(const void *data) const override { return data >= given_ && data < given_ + kBytes; }
  Status with_current(const std::function<Status()> &body) override { return body(); }
  Status make_stream(std::unique_ptr<Stream> &) override { return unsupported(); }
  Status wrap(void *, std::unique_ptr<Stream> &) override { return unsupported(); }
  Status export_dmabuf(const void *data, size_t, DmaBuf &out) override {
    if (!exports_) return unsupported();
    out.fd = ::dup(file_.get());
    out.offset = static_cast<uint64_t>(static_cast<const std::byte *>(data) - given_);
    return {};
  }
  uint64_t allocation_number(const void *data) const override {
    const auto after = numbers_.upper_bound(static_cast<const std::byte *>(data));
    return after == numbers_.begin() ? 0 : std::prev(after)->second;
  }
  Status close(int64_t) override { return {}; }
  // The allocation around it was freed, and another made in its place.
  void replace(const void *data) { numbers_[static_cast<const std::byte *>(data)] = ++allocations_; }

 private:
  static constexpr size_t kAlignment = 512;

  struct Memory final : Allocation {
    Memory(std::byte *data, size_t size) : data_(data), size_(size) {}
    void *data() const override { return data_; }
    size_t size() const override { return size_; }

   private:
    std::byte *data_;
    size_t size_;
  };

  static Status unsupported() { return Status::make(DICOMM_NOT_SUPPORTED, "not on this chip"); }
  static UniqueFd make_file() {
    UniqueFd file(::memfd_create("hidden chip", MFD_CLOEXEC));
    REQUIRE(::ftruncate(file.get(), kBytes) == 0);
    return file;
  }
  std::byte *map(int access) const {
    void *const data = ::mmap(nullptr, kBytes, access, MAP_SHARED, file_.get(), 0);
    REQUIRE(data != MAP_FAILED);
    return static_cast<std::byte *>(data);
  }

  const bool exports_;
  const UniqueFd file_;
  std::byte *const given_, *const inside_;
  size_t used_ = 0;
  uint64_t allocations_ = 0;
  std::map<const std::byte *, uint64_t> numbers_;
};

// Its copies take a few turns of the reactor.
class HiddenChip final : public ChipMemory, private Poller {
 public:
  HiddenChip(Reactor &reactor, bool exports) : reactor_(reactor), device_(exports) { reactor_.add(this); }
  ~HiddenChip() { reactor_.remove(this); }

  HiddenDevice &device() override { return device_; }
  std::byte *allocate(size_t bytes) {
    std::unique_ptr<Allocation> memory;
    REQUIRE(device_.allocate(bytes, memory).ok());
    return static_cast<std::byte *>(memory->data());
  }
  void write(std::byte *to, const std::vector<std::byte> &bytes) {
    if (!bytes.empty()) std::memcpy(device_.inside(to), bytes.data(), bytes.size());
  }
  void read(const std::byte *from, std::vector<std::byte> &bytes) {
    if (!bytes.empty()) std::memcpy(bytes.data(), device_.inside(from), bytes.size());
  }

  bool hold = false;  // no copy ends

  Bounce bounce(size_t bytes) override {
    return Bounce(new std::byte[bytes], std::default_delete<std::byte[]>());
  }
  Status to_host(Bounce into, const std::byte *from, size_t bytes, std::weak_ptr<void> listener,
                 Done done) override {
    std::byte *const to = into.get();
    return start({to, device_.inside(from), bytes, std::move(into), std::move(listener), std::move(done)});
  }
  Status to_chip(std::byte *into, Bounce from, size_t bytes, std::weak_ptr<void> listener,
                 Done done) override {
    const std::byte *const source = from.get();
    return start(
        {device_.inside(into), source, bytes, std::move(from), std::move(listener), std::move(done)});
  }

 private:
  struct Copy {
    std::byte *to;
    const std::byte *from;
    size_t bytes;
    Bounce bounce;
    std::weak_ptr<void> listener;
    Done done;
    int turns = 3;
  };

  Status start(Copy copy) {
    copies_.push_back(std::move(copy));
    return {};
  }
  bool poll() override {
    if (hold || copies_.empty() || --copies_.front().turns > 0) return false;
    const Copy copy = std::move(copies_.front());
    copies_.pop_front();
    std::memcpy(copy.to, copy.from, copy.bytes);
    if (!copy.listener.expired()) copy.done({});
    return true;
  }
  bool arm() override { return !hold && !copies_.empty(); }
  void disarm() override {}
  bool meets_on(int) override { return false; }

  Reactor &reactor_;
  HiddenDevice device_;
  std::deque<Copy> copies_;
};

}  // namespace dicomm::test
