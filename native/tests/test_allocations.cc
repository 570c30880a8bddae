// Small operations allocate nothing once they have been used: their requests, programs and messages are kept.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include <atomic>
#include <cstdlib>
#include <new>

#include "ranks.h"

namespace {
std::atomic<bool> counting{false};
std::atomic<int64_t> allocations{0};
}  // namespace

// Not inlined: the compiler would see malloc and delete meet.
[[gnu::noinline]] void *operator new(size_t size) {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
  if (void *memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void *memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void *memory, size_t) noexcept { std::free(memory); }

namespace dicomm::test {

namespace {

constexpr int kOperations = 2000;

void repeat(dicomm_comm *comm, const dicomm_op &operation) {
  for (int i = 0; i < kOperations; ++i) REQUIRE(finish(comm, operation) == DICOMM_OK);
}

// Queues of the standard library take a block for every 64 entries or so that pass.
void check_allocations(const std::function<void(Rank &, int)> &body) {
  allocations = 0;
  run_ranks(2, [&](Rank &rank, int r) {
    body(rank, r);
    REQUIRE(finish(rank.comm, op(DICOMM_BARRIER, DICOMM_UINT8)) == DICOMM_OK);
    counting = true;
    body(rank, r);
    REQUIRE(finish(rank.comm, op(DICOMM_BARRIER, DICOMM_UINT8)) == DICOMM_OK);
    counting = false;
  });
  CHECK(allocations.load() < 2 * kOperations / 16);
}

}  // namespace

TEST_CASE("small collectives allocate nothing") {
  check_allocations([](Rank &rank, int) {
    std::vector<float> values(16, 1);
    dicomm_block one = block(values);
    dicomm_op reduce = op(DICOMM_ALLREDUCE, DICOMM_FLOAT32);
    reduce.reduce = DICOMM_MAX;
    reduce.send = reduce.recv = &one;
    reduce.nsend = reduce.nrecv = 1;
    repeat(rank.comm, reduce);
  });
}

TEST_CASE("small messages allocate nothing") {
  check_allocations([](Rank &rank, int r) {
    std::vector<float> values(16, 1);
    dicomm_block one = block(values);
    dicomm_op send = op(DICOMM_SEND, DICOMM_FLOAT32), recv = op(DICOMM_RECV, DICOMM_FLOAT32);
    send.peer = recv.peer = 1 - r;
    send.send = recv.recv = &one;
    send.nsend = recv.nrecv = 1;
    for (int i = 0; i < kOperations; ++i) {
      REQUIRE(finish(rank.comm, r == 0 ? send : recv) == DICOMM_OK);
      REQUIRE(finish(rank.comm, r == 0 ? recv : send) == DICOMM_OK);
    }
  });
}

}  // namespace dicomm::test

#endif
