// A message of more than 4 GiB over RDMA, from and to memory that is mostly the same pages, mapped again and
// again.
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <span>

#include "ranks.h"
#include "verbs_double.h"

namespace dicomm::test {

namespace {

constexpr size_t kWindow = size_t{16} << 20;
constexpr size_t kBytes = (size_t{4} << 30) + (size_t{5} << 20) + 12345;
constexpr size_t kWindows = (kBytes + kWindow - 1) / kWindow;
// Windows that have pages of their own: the ends, and where a 31- or 32-bit size or offset would break.
constexpr size_t kOwn[] = {0, 127, 128, 255, kWindows - 1};

class Folded {
 public:
  Folded() {
    const int pages = ::memfd_create("window", MFD_CLOEXEC);
    REQUIRE(pages >= 0);
    REQUIRE(::ftruncate(pages, kWindow) == 0);
    void *const all = ::mmap(nullptr, kWindows * kWindow, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(all != MAP_FAILED);
    data_ = static_cast<std::byte *>(all);
    for (size_t i = 0; i < kWindows; ++i) {
      if (std::find(std::begin(kOwn), std::end(kOwn), i) != std::end(kOwn)) continue;
      std::byte *const at = data_ + i * kWindow;
      REQUIRE(::mmap(at, kWindow, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, pages, 0) == at);
    }
    ::close(pages);
  }
  ~Folded() { ::munmap(data_, kWindows * kWindow); }
  Folded(const Folded &) = delete;

  std::byte *data() const { return data_; }
  std::span<uint64_t> window(size_t index) const {
    return {reinterpret_cast<uint64_t *>(data_ + index * kWindow),
            std::min(kWindow, kBytes - index * kWindow) / sizeof(uint64_t)};
  }

 private:
  std::byte *data_ = nullptr;
};

uint64_t word(size_t window, size_t index) { return (window << 32 | index) * 0x9e3779b97f4a7c15; }

}  // namespace

TEST_CASE("more than 4 GiB in one message over RDMA") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return;  // which keep a shadow of all memory
#endif
  VerbsDouble verbs;
  const std::string rdma = "library=" + double_path("ibverbs");
  const auto over_double = [&](int, dicomm_context_options &options) {
    options.paths = "rdma-direct";
    options.rdma = rdma.c_str();
  };
  constexpr size_t kShared = 1;  // one of those that are the same pages
  const auto run = [&](Rank &self, int rank) {
    const Folded memory;
    std::vector<size_t> windows(std::begin(kOwn), std::end(kOwn));
    windows.push_back(kShared);
    if (rank == 0)
      for (const size_t i : windows)
        for (size_t k = 0; k < memory.window(i).size(); ++k) memory.window(i)[k] = word(i, k);
    const dicomm_block all{memory.data(), static_cast<int64_t>(kBytes), nullptr};
    dicomm_op message = op(rank == 0 ? DICOMM_SEND : DICOMM_RECV, DICOMM_UINT8);
    message.peer = 1 - rank;
    message.timeout_ns = 100 * kSecondNs;
    (rank == 0 ? message.send : message.recv) = &all;
    (rank == 0 ? message.nsend : message.nrecv) = 1;
    REQUIRE(finish(self.comm, message) == DICOMM_OK);
    for (const size_t i : windows) {
      const auto words = memory.window(i);
      size_t wrong = 0;
      for (size_t k = 0; k < words.size(); ++k) wrong += words[k] != word(i, k);
      CHECK_MESSAGE(wrong == 0, "window ", i);
    }
    if (rank == 0) {
      const std::string written = "\"direct_bytes\": " + std::to_string(kBytes);
      CHECK(self.context_info().find(written) != std::string::npos);
    }
    CHECK(finish(self.comm, op(DICOMM_BARRIER, DICOMM_UINT8)) == DICOMM_OK);
  };
  run_ranks(2, run, 1, "", over_double);
}

}  // namespace dicomm::test
