// Messages between simulated chips whose memory cards read and write, through the C ABI, ranks as threads:
// what the ways through a chip's memory and through the host's must do together.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <mutex>
#include <numeric>
#include <random>

#include "ranks.h"
#include "verbs_double.h"

namespace dicomm::test {

namespace {

// Two brands over the double of libibverbs.
void run_chips(const std::function<void(Rank &, int)> &body, double copy_latency_us = 0) {
  const std::string rdma = "queue_pairs=2, library=" + double_path("ibverbs");
  dicomm_simulation simulation{};
  simulation.size = sizeof simulation;
  simulation.dtypes = UINT64_MAX;
  simulation.copy_latency_us = copy_latency_us;
  std::array<dicomm_chip, 2> chips{};
  const auto adjust = [&](int rank, dicomm_context_options &options) {
    dicomm_chip &chip = chips[static_cast<size_t>(rank)];
    chip.size = sizeof chip;
    chip.vendor = rank == 0 ? "alpha" : "beta";
    chip.simulation = &simulation;
    options.chip = &chip;
    options.paths = "rdma-direct>tcp";
    options.rdma = rdma.c_str();
  };
  run_ranks(2, body, 1, "", adjust);
}

uint64_t counter(const Rank &rank, const std::string &name) {
  const std::string text = rank.context_info();
  const size_t at = text.find('"' + name + "\": ");
  REQUIRE(at != std::string::npos);
  return std::stoull(text.substr(at + name.size() + 4));
}

dicomm_op message(dicomm_opcode opcode, int peer, const dicomm_block &block) {
  dicomm_op made = op(opcode, DICOMM_INT32);
  made.peer = peer;
  (opcode == DICOMM_SEND ? made.send : made.recv) = &block;
  (opcode == DICOMM_SEND ? made.nsend : made.nrecv) = 1;
  return made;
}

dicomm_request *start(Rank &self, const dicomm_op &operation) {
  dicomm_request *request = nullptr;
  const dicomm_status started = dicomm_start(self.comm, &operation, &request);
  if (started != DICOMM_OK) MESSAGE(Rank::error());
  REQUIRE(started == DICOMM_OK);
  return request;
}

dicomm_status wait(dicomm_request *request) {
  const dicomm_status status = dicomm_request_wait(request, DICOMM_TIMEOUT_NEVER);
  dicomm_request_free(request);
  return status;
}

std::vector<int32_t> numbers(size_t count, int first) {
  std::vector<int32_t> out(count);
  std::iota(out.begin(), out.end(), first);
  return out;
}

// Several messages each way at a time, of sizes on both sides of every limit.
void exchange(Rank &self, int rank, int rounds) {
  std::mt19937 random(5);  // the same on both ranks
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::vector<int32_t>> mine, theirs;
    std::vector<dicomm_block> blocks;
    for (int i = 0; i < 6; ++i) {
      const size_t most[] = {10, 20000, 300000, 1000000};
      const size_t count = random() % most[random() % 4];
      mine.push_back(numbers(count, 1000 * round + 10 * i + rank));
      theirs.emplace_back(count, -1);
    }
    for (auto &values : mine) blocks.push_back(block(values));
    for (auto &values : theirs) blocks.push_back(block(values));
    std::vector<dicomm_request *> requests;
    for (size_t i = 0; i < 6; ++i) {
      requests.push_back(start(self, message(DICOMM_RECV, 1 - rank, blocks[6 + i])));
      requests.push_back(start(self, message(DICOMM_SEND, 1 - rank, blocks[i])));
    }
    for (dicomm_request *request : requests) REQUIRE(wait(request) == DICOMM_OK);
    for (int i = 0; i < 6; ++i) {
      const auto &got = theirs[static_cast<size_t>(i)];
      CHECK(got == numbers(got.size(), 1000 * round + 10 * i + 1 - rank));
    }
  }
}

TEST_CASE("messages between chips pass the host by, and through it when the link is lost") {
  for (const int64_t cut : {-1, 150, 220, 290}) {
    CAPTURE(cut);
    VerbsDouble verbs;
    verbs.control.settings.cut_after = cut;
    verbs.control.settings.cut_how = doubles::VerbsSettings::partly;
    run_chips([&](Rank &self, int rank) {
      exchange(self, rank, 8);
      CHECK(counter(self, "chip_bytes") > 0);
      CHECK(counter(self, "fallbacks") == (cut < 0 ? 0 : 1));
      const std::string text = self.context_info();
      CHECK(text.find("\"chip_memory\": \"host memory\"") != std::string::npos);
    });
  }
}

TEST_CASE("a receive on a chip that is canceled is not written to, and the next one is") {
  VerbsDouble verbs;
  run_chips([](Rank &self, int rank) {
    exchange(self, rank, 1);
    std::vector<int32_t> values = numbers(500000, 7), first(500000, -1), second(500000, -1);
    const dicomm_block a = block(values), b = block(first), c = block(second);
    if (rank == 1) {
      dicomm_request *const request = start(self, message(DICOMM_RECV, 0, b));
      CHECK(dicomm_request_cancel(request) == DICOMM_OK);
      CHECK(wait(request) == DICOMM_CANCELED);
    }
    CHECK(finish(self.comm, op(DICOMM_BARRIER, DICOMM_UINT8)) == DICOMM_OK);
    CHECK(finish(self.comm, rank == 0 ? message(DICOMM_SEND, 1, a) : message(DICOMM_RECV, 0, c)) ==
          DICOMM_OK);
    CHECK(first == std::vector<int32_t>(500000, -1));
    if (rank == 1) CHECK(second == values);
  });
}

TEST_CASE("a receive on a chip from a rank that has left without a word ends") {
  VerbsDouble verbs;
  std::atomic<bool> closed{false}, heard{false};
  run_chips([&](Rank &self, int rank) {
    if (rank == 0) {
      dicomm_comm_close(self.comm);
      self.comm = nullptr;
      closed = true;
      while (!heard) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    while (!closed) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::vector<int32_t> values(500000);
    const dicomm_block all = block(values);
    CHECK(finish(self.comm, message(DICOMM_RECV, 0, all)) == DICOMM_PEER_LOST);
    heard = true;
  });
}

TEST_CASE("a receive on a chip that is busy can be canceled at once") {
  VerbsDouble verbs;
  std::atomic<bool> sent{false}, over{false};
  run_chips(
      [&](Rank &self, int rank) {
        CHECK(finish(self.comm, op(DICOMM_BARRIER, DICOMM_UINT8)) == DICOMM_OK);
        std::vector<int32_t> few = numbers(10, 7), got(10, -1), many(500000, -1);
        const dicomm_block a = block(few), b = block(got), c = block(many);
        if (rank == 0) {
          CHECK(finish(self.comm, message(DICOMM_SEND, 1, a)) == DICOMM_OK);
          sent = true;
          while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          return;
        }
        dicomm_request *const first = start(self, message(DICOMM_RECV, 0, b));
        while (!sent) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        CHECK(dicomm_request_wait(first, kSecondNs / 20) == DICOMM_IN_PROGRESS);  // on its way to the chip
        dicomm_request *const second = start(self, message(DICOMM_RECV, 0, c));
        const auto begun = std::chrono::steady_clock::now();
        CHECK(dicomm_request_cancel(second) == DICOMM_OK);
        CHECK(wait(second) == DICOMM_CANCELED);
        CHECK(std::chrono::steady_clock::now() - begun < std::chrono::milliseconds(500));
        CHECK(wait(first) == DICOMM_OK);
        CHECK(got == few);
        over = true;
      },
      1e6);
}

TEST_CASE("an abort frees messages between chips that are under way") {
  VerbsDouble verbs;
  std::atomic<int> through{0};
  run_chips([&](Rank &self, int rank) {
    exchange(self, rank, 1);
    std::vector<int32_t> values = numbers(3000000, 7);
    const dicomm_block all = block(values);
    CHECK(finish(self.comm, op(DICOMM_BARRIER, DICOMM_UINT8)) == DICOMM_OK);
    ++through;
    while (through < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (rank == 0) {
      const std::lock_guard lock(verbs.control.mutex);
      verbs.control.settings.hold = true;
    }
    dicomm_request *const request =
        start(self, message(rank == 0 ? DICOMM_SEND : DICOMM_RECV, 1 - rank, all));
    if (rank == 0) {
      CHECK(dicomm_request_wait(request, kSecondNs / 5) == DICOMM_IN_PROGRESS);
      dicomm_comm_abort(self.comm, "enough");
      verbs.control.release();
    }
    CHECK(wait(request) == DICOMM_ABORTED);
  });
}

}  // namespace

}  // namespace dicomm::test
