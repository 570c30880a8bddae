// Operations end to end through the C ABI, ranks as threads: what the layers must do together.

#include <atomic>
#include <cstring>
#include <numeric>

#include "ranks.h"

namespace dicomm::test {

namespace {

TEST_CASE("allreduce sums what every rank gives, at any size and number of ranks") {
  for (const int size : {1, 2, 3, 4, 5}) {
    CAPTURE(size);
    run_ranks(size, [size](Rank &self, int rank) {
      for (const size_t count : {size_t{0}, size_t{1}, size_t{1000}, size_t{300000}}) {
        std::vector<float> in(count), out(count, -1);
        for (size_t i = 0; i < count; ++i) in[i] = static_cast<float>(rank + 1) * static_cast<float>(i % 100);
        dicomm_op allreduce = op(DICOMM_ALLREDUCE, DICOMM_FLOAT32);
        const dicomm_block send = block(in), recv = block(out);
        allreduce.send = &send;
        allreduce.recv = &recv;
        allreduce.nsend = allreduce.nrecv = 1;
        REQUIRE(finish(self.comm, allreduce) == DICOMM_OK);
        bool equal = true;
        for (size_t i = 0; i < count; ++i) {
          equal = equal && out[i] == static_cast<float>(size * (size + 1) / 2) * static_cast<float>(i % 100);
        }
        CHECK(equal);
      }
    });
  }
}

TEST_CASE("alltoall with uneven blocks, over one and three sockets") {
  for (const uint32_t sockets : {1u, 3u}) {
    run_ranks(
        3,
        [](Rank &self, int rank) {
          std::vector<std::vector<int64_t>> out(3), in(3);
          std::vector<dicomm_block> send, recv;
          for (int peer = 0; peer < 3; ++peer) {
            const auto p = static_cast<size_t>(peer);
            out[p].assign(static_cast<size_t>(rank * 3 + peer) * 20000, rank * 10 + peer);
            in[p].assign(static_cast<size_t>(peer * 3 + rank) * 20000, -1);
            send.push_back(block(out[p]));
            recv.push_back(block(in[p]));
          }
          dicomm_op alltoall = op(DICOMM_ALLTOALL, DICOMM_INT64);
          alltoall.send = send.data();
          alltoall.recv = recv.data();
          alltoall.nsend = alltoall.nrecv = 3;
          REQUIRE(finish(self.comm, alltoall) == DICOMM_OK);
          for (int peer = 0; peer < 3; ++peer) {
            const auto &got = in[static_cast<size_t>(peer)];
            CHECK(got == std::vector<int64_t>(got.size(), peer * 10 + rank));
          }
        },
        sockets);
  }
}

TEST_CASE("messages keep their order per tag and any-source receives them all") {
  run_ranks(3, [](Rank &self, int rank) {
    constexpr int kEach = 50;
    if (rank != 0) {
      for (int i = 0; i < kEach; ++i) {
        std::vector<int32_t> value(i % 5 == 0 ? 100000 : 1, rank * 1000 + i);  // eager and rendezvous
        dicomm_op send = op(DICOMM_SEND, DICOMM_INT32);
        const dicomm_block b = block(value);
        send.send = &b;
        send.nsend = 1;
        send.tag = 7;
        REQUIRE(finish(self.comm, send) == DICOMM_OK);
      }
      return;
    }
    std::vector<int> next(3, 0);
    for (int i = 0; i < 2 * kEach; ++i) {
      std::vector<int32_t> value(100000, -1);
      dicomm_op recv = op(DICOMM_RECV, DICOMM_INT32);
      const dicomm_block b = block(value);
      recv.recv = &b;
      recv.nrecv = 1;
      recv.peer = DICOMM_ANY_SOURCE;
      recv.tag = 7;
      dicomm_request *request = nullptr;
      REQUIRE(dicomm_start(self.comm, &recv, &request) == DICOMM_OK);
      REQUIRE(dicomm_request_wait(request, DICOMM_TIMEOUT_NEVER) == DICOMM_OK);
      dicomm_request_info info{};
      info.size = sizeof info;
      dicomm_request_get_info(request, &info);
      dicomm_request_free(request);
      const int expected = next[static_cast<size_t>(info.source)]++;
      CHECK(value[0] == info.source * 1000 + expected);
      CHECK(info.bytes == (expected % 5 == 0 ? 400000u : 4u));
    }
  });
}

TEST_CASE("different collectives are a mismatch that names both calls on every rank") {
  run_ranks(3, [](Rank &self, int rank) {
    std::vector<float> values(10, 1);
    const dicomm_block b = block(values);
    // Everybody waits for the root it names and sends nothing: only asking finds this.
    dicomm_op broadcast = op(DICOMM_BROADCAST, DICOMM_FLOAT32);
    broadcast.recv = &b;
    broadcast.nrecv = 1;
    broadcast.peer = (rank + 1) % 3;
    CHECK(finish(self.comm, broadcast) == DICOMM_MISMATCH);
    CHECK(Rank::error().find("broadcast(float32, root") != std::string::npos);
    CHECK(finish(self.comm, op(DICOMM_BARRIER, DICOMM_UINT8)) == DICOMM_MISMATCH);
  });
}

TEST_CASE("abort frees every waiter") {
  std::atomic<int> waiting{0}, heard{0};
  run_ranks(4, [&](Rank &self, int rank) {
    if (rank == 2) {
      while (waiting < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      dicomm_comm_abort(self.comm, "enough");
      while (heard < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    ++waiting;
    CHECK(finish(self.comm, op(DICOMM_BARRIER, DICOMM_UINT8)) == DICOMM_ABORTED);
    CHECK(Rank::error().find("enough") != std::string::npos);
    ++heard;
  });
}

TEST_CASE("a rank that comes late to what was aborted and closed hears why") {
  std::atomic<bool> there{false}, closed{false}, heard{false};
  run_ranks(2, [&](Rank &self, int rank) {
    if (rank == 0) {
      while (!there) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      dicomm_comm_abort(self.comm, "enough");
      dicomm_comm_close(self.comm);
      self.comm = nullptr;
      closed = true;
      while (!heard) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    there = true;
    while (!closed) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(finish(self.comm, op(DICOMM_BARRIER, DICOMM_UINT8)) == DICOMM_ABORTED);
    CHECK(Rank::error().find("enough") != std::string::npos);
    heard = true;
  });
}

TEST_CASE("a late rank is a time-out that names it") {
  run_ranks(2, [](Rank &self, int rank) {
    dicomm_op barrier = op(DICOMM_BARRIER, DICOMM_UINT8);
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(600));
      return;
    }
    barrier.timeout_ns = kSecondNs / 5;
    CHECK(finish(self.comm, barrier) == DICOMM_TIMED_OUT);
    CHECK(Rank::error().find("rank 1") != std::string::npos);
  });
}

TEST_CASE("split makes independent communicators, threads use them at once") {
  run_ranks(4, [](Rank &self, int rank) {
    dicomm_comm *half = nullptr;
    REQUIRE(dicomm_comm_split(self.comm, rank % 2, -rank, nullptr, &half) == DICOMM_OK);
    std::thread other([&] {
      for (int i = 0; i < 50; ++i) CHECK(finish(self.comm, op(DICOMM_BARRIER, DICOMM_UINT8)) == DICOMM_OK);
    });
    for (int i = 0; i < 50; ++i) {
      std::vector<int32_t> mine{rank}, all(2, -1);
      dicomm_op gather = op(DICOMM_ALLGATHER, DICOMM_INT32);
      const dicomm_block send = block(mine), recv = block(all);
      gather.send = &send;
      gather.recv = &recv;
      gather.nsend = gather.nrecv = 1;
      REQUIRE(finish(half, gather) == DICOMM_OK);
      CHECK(all == std::vector<int32_t>{rank % 2 + 2, rank % 2});  // ordered by key, which falls with rank
    }
    other.join();
    dicomm_comm_close(half);
    dicomm_comm *none = nullptr;
    REQUIRE(dicomm_comm_split(self.comm, -1, 0, nullptr, &none) == DICOMM_OK);
    CHECK(none == nullptr);
  });
}

TEST_CASE("a dropped request still happens, a canceled receive does not") {
  run_ranks(2, [](Rank &self, int rank) {
    std::vector<int32_t> value(200000, rank == 0 ? 5 : -1);
    const dicomm_block b = block(value);
    if (rank == 0) {
      dicomm_op send = op(DICOMM_SEND, DICOMM_INT32);
      send.send = &b;
      send.nsend = 1;
      send.peer = 1;
      dicomm_request *request = nullptr;
      REQUIRE(dicomm_start(self.comm, &send, &request) == DICOMM_OK);
      dicomm_request_free(request);
    } else {
      dicomm_op recv = op(DICOMM_RECV, DICOMM_INT32);
      recv.recv = &b;
      recv.nrecv = 1;
      recv.tag = 99;
      dicomm_request *request = nullptr;
      REQUIRE(dicomm_start(self.comm, &recv, &request) == DICOMM_OK);
      CHECK(dicomm_request_cancel(request) == DICOMM_OK);
      CHECK(dicomm_request_wait(request, 0) == DICOMM_CANCELED);
      dicomm_request_free(request);
      recv.tag = 0;
      CHECK(finish(self.comm, recv) == DICOMM_OK);
      CHECK(value == std::vector<int32_t>(200000, 5));
    }
    CHECK(finish(self.comm, op(DICOMM_BARRIER, DICOMM_UINT8)) == DICOMM_OK);
  });
}

TEST_CASE("a receiver that falls behind by more than the eager window loses nothing") {
  run_ranks(2, [](Rank &self, int rank) {
    // 20 MiB of eager messages and empty ones behind them, before the other side asks for any.
    constexpr int kMessages = 320;
    std::vector<uint8_t> value(64 << 10, 0);
    std::vector<dicomm_request *> requests;
    for (int i = 0; i < kMessages && rank == 0; ++i) {
      for (const size_t size : {value.size(), size_t{0}}) {
        dicomm_op send = op(DICOMM_SEND, DICOMM_UINT8);
        const dicomm_block b{value.data(), static_cast<int64_t>(size), nullptr};
        send.send = &b;
        send.nsend = 1;
        send.peer = 1;
        dicomm_request *request = nullptr;
        REQUIRE(dicomm_start(self.comm, &send, &request) == DICOMM_OK);
        requests.push_back(request);
      }
    }
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    for (int i = 0; i < 2 * kMessages && rank == 1; ++i) {
      dicomm_op recv = op(DICOMM_RECV, DICOMM_UINT8);
      const dicomm_block b{value.data(), static_cast<int64_t>(value.size()), nullptr};
      recv.recv = &b;
      recv.nrecv = 1;
      recv.peer = 0;
      REQUIRE(finish(self.comm, recv) == DICOMM_OK);
    }
    for (dicomm_request *request : requests) {
      CHECK(dicomm_request_wait(request, DICOMM_TIMEOUT_NEVER) == DICOMM_OK);
      dicomm_request_free(request);
    }
    CHECK(finish(self.comm, op(DICOMM_BARRIER, DICOMM_UINT8)) == DICOMM_OK);
  });
}

TEST_CASE("a rank that left is known to whoever waits for it, neighbour or not") {
  run_ranks(4, [](Rank &self, int rank) {
    if (rank == 2) {
      dicomm_comm_close(self.comm);
      self.comm = nullptr;
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      return;
    }
    if (rank == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      std::vector<float> value(1);
      dicomm_op recv = op(DICOMM_RECV, DICOMM_FLOAT32);
      const dicomm_block b = block(value);
      recv.recv = &b;
      recv.nrecv = 1;
      recv.peer = 2;
      CHECK(finish(self.comm, recv) == DICOMM_PEER_LOST);
      CHECK(Rank::error().find("rank 2") != std::string::npos);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(400));
    }
  });
}

TEST_CASE("a communicator may be closed after its context, and says so meanwhile") {
  run_ranks(2, [](Rank &self, int) {
    CHECK(finish(self.comm, op(DICOMM_BARRIER, DICOMM_UINT8)) == DICOMM_OK);
    self.close_context();
    CHECK(finish(self.comm, op(DICOMM_BARRIER, DICOMM_UINT8)) == DICOMM_INVALID_ARGUMENT);
  });
}

TEST_CASE("strided buffers mean their logical elements") {
  run_ranks(2, [](Rank &self, int rank) {
    // Every second element of 8 is sent; received in reverse order.
    std::vector<int32_t> from(8), to(4, -1);
    std::iota(from.begin(), from.end(), 10 * rank);
    const int64_t shape[] = {4}, step[] = {8}, back[] = {-4};
    const dicomm_layout every_second{1, shape, step}, reversed{1, shape, back};
    const dicomm_block send{from.data(), 4, &every_second}, recv{to.data() + 3, 4, &reversed};
    dicomm_op sum = op(DICOMM_ALLREDUCE, DICOMM_INT32);
    sum.send = &send;
    sum.recv = &recv;
    sum.nsend = sum.nrecv = 1;
    REQUIRE(finish(self.comm, sum) == DICOMM_OK);
    CHECK(to == std::vector<int32_t>{22, 18, 14, 10});
  });
}

}  // namespace

}  // namespace dicomm::test
