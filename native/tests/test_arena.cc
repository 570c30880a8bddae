// Small collectives on one host: through memory that the ranks share, ranks as threads.

#include "exec/arena.h"

#include <atomic>
#include <chrono>
#include <random>

#include "ranks.h"

namespace dicomm::test {

namespace {

using std::chrono::milliseconds;

struct Started {
  dicomm_request *request = nullptr;
  std::vector<int64_t> in, out, expected;
};

// A collective of `count` elements a rank, what it is given, and what must come of it on this rank.
void start(Started &it, dicomm_comm *comm, dicomm_opcode code, int root, size_t count, int rank, int size,
           int64_t salt) {
  const auto given = [&](int from, size_t i) {
    return salt * 1000 + from * 100 + static_cast<int64_t>(i % 7);
  };
  const auto n = static_cast<size_t>(size);
  const bool many_in =
      code == DICOMM_ALLTOALL || code == DICOMM_REDUCE_SCATTER || (code == DICOMM_SCATTER && rank == root);
  for (size_t i = 0; i < (many_in ? n * count : count); ++i) it.in.push_back(given(rank, i));
  for (size_t i = 0;
       i < (code == DICOMM_ALLGATHER || code == DICOMM_GATHER || code == DICOMM_ALLTOALL ? n : 1) * count;
       ++i) {
    const size_t own = static_cast<size_t>(rank) * count + i % count;
    int64_t sum = 0;
    for (int r = 0; r < size; ++r) sum += given(r, code == DICOMM_REDUCE_SCATTER ? own : i);
    switch (code) {
      case DICOMM_BROADCAST:
        it.expected.push_back(given(root, i));
        break;
      case DICOMM_ALLTOALL:
        it.expected.push_back(given(static_cast<int>(i / count), own));
        break;
      case DICOMM_SCATTER:
        it.expected.push_back(given(root, own));
        break;
      case DICOMM_ALLGATHER:
      case DICOMM_GATHER:
        it.expected.push_back(given(static_cast<int>(i / count), i % count));
        break;
      default:
        it.expected.push_back(sum);
    }
  }
  it.out.assign(it.expected.size(), -1);
  if (code == DICOMM_BROADCAST && rank == root) it.out = it.in;
  if (code == DICOMM_BARRIER) it.expected = it.out;
  const bool gets = (code != DICOMM_REDUCE && code != DICOMM_GATHER) || rank == root;
  const bool gives = (code != DICOMM_SCATTER || rank == root) && code != DICOMM_BROADCAST;
  if (!gets) it.expected = it.out;
  const dicomm_block send = block(it.in), recv = block(it.out);
  dicomm_op made = op(code, DICOMM_INT64);
  made.peer = root;
  made.reduce = DICOMM_SUM;
  made.send = &send;
  made.recv = &recv;
  made.nsend = gives;
  made.nrecv = gets;
  if (code == DICOMM_BARRIER) made = op(code, DICOMM_UINT8);
  REQUIRE(dicomm_start(comm, &made, &it.request) == DICOMM_OK);
}

void end(Started &it) {
  const dicomm_status status = dicomm_request_wait(it.request, DICOMM_TIMEOUT_NEVER);
  if (status != DICOMM_OK) MESSAGE(Rank::error());
  REQUIRE(status == DICOMM_OK);
  dicomm_request_free(it.request);
  CHECK(it.out == it.expected);
}

int64_t counted(dicomm_comm *comm, const std::string &what) {
  std::string text(dicomm_comm_info(comm, nullptr, 0) + 256, 0);
  dicomm_comm_info(comm, text.data(), text.size());
  const size_t arena = text.find("\"arena\": {");
  if (arena == std::string::npos) return -1;
  return std::stoll(text.substr(text.find("\"" + what + "\": ", arena) + what.size() + 4));
}

constexpr dicomm_opcode kAll[] = {DICOMM_BROADCAST, DICOMM_ALLREDUCE,      DICOMM_REDUCE,
                                  DICOMM_ALLGATHER, DICOMM_REDUCE_SCATTER, DICOMM_ALLTOALL,
                                  DICOMM_GATHER,    DICOMM_SCATTER,        DICOMM_BARRIER};

// Waits that never poll, so that every wait sleeps and is woken.
void sleepless(int, dicomm_context_options &options) { options.spin_ns = 0; }

}  // namespace

TEST_CASE("arena: every operation, from nothing to more than a message may have") {
  for (const int size : {2, 3, 5}) {
    CAPTURE(size);
    const size_t edge = most_in_arena(size) / sizeof(int64_t);
    run_ranks(size, [&](Rank &self, int rank) {
      int64_t salt = 0;
      for (const size_t count : {size_t{1}, size_t{3}, size_t{1000}, edge - 1, edge, edge + 1}) {
        for (const dicomm_opcode code : kAll) {
          CAPTURE(count);
          CAPTURE(static_cast<int>(code));
          Started it;
          start(it, self.comm, code, static_cast<int>(count) % size, count, rank, size, ++salt);
          end(it);
        }
      }
      std::vector<int64_t> nothing;
      const dicomm_block none = block(nothing);
      dicomm_op empty = op(DICOMM_ALLREDUCE, DICOMM_INT64);
      empty.send = empty.recv = &none;
      empty.nsend = empty.nrecv = 1;
      CHECK(finish(self.comm, empty) == DICOMM_OK);
      CHECK(counted(self.comm, "operations") > 30);
    });
  }
}

TEST_CASE("arena: many operations in flight, waited for in any order, with and without sleep") {
  for (const bool sleeps : {false, true}) {
    for (const int size : {2, 4}) {
      run_ranks(
          size,
          [&](Rank &self, int rank) {
            std::mt19937 random(static_cast<unsigned>(rank) + 1);
            for (int round = 0; round < 6; ++round) {
              std::vector<Started> all(60);
              for (size_t i = 0; i < all.size(); ++i) {
                const size_t count =
                    i % 11 == 10 ? 20000 : 1 + i % 5;  // now and then too large for the arena
                start(all[i], self.comm, kAll[i % 9], static_cast<int>(i) % size, count, rank, size,
                      static_cast<int64_t>(i) + round * 100);
                if (i % 7 == static_cast<size_t>(rank)) std::this_thread::yield();
              }
              std::vector<size_t> order(all.size());
              for (size_t i = 0; i < order.size(); ++i) order[i] = i;
              std::shuffle(order.begin(), order.end(), random);
              for (const size_t i : order) end(all[i]);
            }
          },
          1, "", sleeps ? sleepless : Adjust());
    }
  }
}

TEST_CASE("arena: a root that runs ahead waits for room, and overwrites nothing") {
  for (const bool sleeps : {false, true}) {
    run_ranks(
        3,
        [](Rank &self, int rank) {
          if (rank == 2) std::this_thread::sleep_for(milliseconds(100));
          for (int i = 0; i < 100; ++i) {
            Started it;
            start(it, self.comm, DICOMM_BROADCAST, 0, 5, rank, 3, i);
            end(it);
            if (rank == 2 && i % 10 == 0) std::this_thread::sleep_for(milliseconds(2));
          }
        },
        1, "", sleeps ? sleepless : Adjust());
  }
}

TEST_CASE("arena: calls that differ are told apart though neither needs the other's data") {
  run_ranks(3, [](Rank &self, int rank) {
    std::vector<float> values(10, 1), more(10);
    const dicomm_block b = block(values), c = block(more);
    dicomm_op call = op(rank == 0 ? DICOMM_BROADCAST : DICOMM_REDUCE, DICOMM_FLOAT32);
    call.recv = &c;
    call.nrecv = 1;
    if (rank != 0) call.send = &b, call.nsend = 1;
    dicomm_status status = finish(self.comm, call);  // well for whoever is not answered
    for (int i = 0; i < 20 && status == DICOMM_OK; ++i) {
      status = finish(self.comm, op(DICOMM_BARRIER, DICOMM_UINT8));
    }
    CHECK(status == DICOMM_MISMATCH);
    const std::string error = Rank::error();
    CHECK(error.find("broadcast(float32, root 0, 10 elements)") != std::string::npos);
    CHECK(error.find("reduce(float32, sum, root 0, 10 elements)") != std::string::npos);
  });
}

TEST_CASE("arena: an operation of the arena and one of messages are a mismatch") {
  run_ranks(3, [](Rank &self, int rank) {
    std::vector<float> values(rank == 1 ? size_t{1} << 20 : 1, 1);
    const dicomm_block b = block(values);
    dicomm_op allreduce = op(DICOMM_ALLREDUCE, DICOMM_FLOAT32);
    allreduce.send = allreduce.recv = &b;
    allreduce.nsend = allreduce.nrecv = 1;
    CHECK(finish(self.comm, allreduce) == DICOMM_MISMATCH);
    CHECK(Rank::error().find("1048576 elements") != std::string::npos);
  });
}

TEST_CASE("arena: counts of alltoall that do not agree are a mismatch, small or large") {
  for (const auto &[sent, expected] : {std::pair<size_t, size_t>{3, 4}, {3, 50000}, {50000, 3}}) {
    CAPTURE(sent);
    CAPTURE(expected);
    run_ranks(2, [&, sent = sent, expected = expected](Rank &self, int rank) {
      std::vector<int32_t> own(2), out(rank == 0 ? sent : 2), in(rank == 0 ? 2 : expected), back(2);
      dicomm_block send[2] = {block(own), block(out)}, recv[2] = {block(back), block(in)};
      if (rank == 1) std::swap(send[0], send[1]), std::swap(recv[0], recv[1]);
      dicomm_op alltoall = op(DICOMM_ALLTOALL, DICOMM_INT32);
      alltoall.send = send;
      alltoall.recv = recv;
      alltoall.nsend = alltoall.nrecv = 2;
      dicomm_status status = finish(self.comm, alltoall);
      if (status == DICOMM_OK) status = finish(self.comm, op(DICOMM_BARRIER, DICOMM_UINT8));
      CHECK(status == DICOMM_MISMATCH);
    });
  }
}

TEST_CASE("arena: abort, a time-out and a rank that leaves end a wait, asleep or not") {
  for (const bool sleeps : {false, true}) {
    std::atomic<int> heard{0};
    run_ranks(
        4,
        [&](Rank &self, int rank) {
          REQUIRE(finish(self.comm, op(DICOMM_BARRIER, DICOMM_UINT8)) == DICOMM_OK);
          dicomm_comm *other = nullptr, *third = nullptr;
          REQUIRE(dicomm_comm_split(self.comm, 0, rank, nullptr, &other) == DICOMM_OK);
          REQUIRE(dicomm_comm_split(self.comm, 0, rank, nullptr, &third) == DICOMM_OK);
          const auto began = std::chrono::steady_clock::now();
          if (rank == 2) {
            std::this_thread::sleep_for(milliseconds(50));
            dicomm_comm_abort(self.comm, "enough");
            dicomm_comm_close(other);
            while (heard < 3) std::this_thread::sleep_for(milliseconds(1));
          } else {
            CHECK(finish(self.comm, op(DICOMM_BARRIER, DICOMM_UINT8)) == DICOMM_ABORTED);
            CHECK(finish(other, op(DICOMM_BARRIER, DICOMM_UINT8)) == DICOMM_PEER_LOST);
            CHECK(std::chrono::steady_clock::now() - began < milliseconds(3000));
            dicomm_op barrier = op(DICOMM_BARRIER, DICOMM_UINT8);
            barrier.timeout_ns = kSecondNs / 5;
            if (rank == 0) {
              CHECK(finish(third, barrier) == DICOMM_TIMED_OUT);
              CHECK(Rank::error().find("rank ") != std::string::npos);
            }
            dicomm_comm_close(other);
            ++heard;
            while (heard < 3) std::this_thread::sleep_for(milliseconds(1));
          }
          dicomm_comm_close(third);
        },
        1, "", sleeps ? sleepless : Adjust());
  }
}

TEST_CASE("arena: threads on communicators of their own") {
  run_ranks(3, [](Rank &self, int rank) {
    constexpr int kThreads = 3;
    dicomm_comm *comms[kThreads] = {};
    for (dicomm_comm *&comm : comms)
      REQUIRE(dicomm_comm_split(self.comm, 0, rank, nullptr, &comm) == DICOMM_OK);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 100; ++i) {
          Started it;
          start(it, comms[t], kAll[static_cast<size_t>(i + t) % 9], i % 3, 4, rank, 3, i * 10 + t);
          end(it);
        }
      });
    }
    for (std::thread &thread : threads) thread.join();
    for (dicomm_comm *comm : comms) {
      CHECK(counted(comm, "operations") == 100);
      dicomm_comm_close(comm);
    }
  });
}

TEST_CASE("arena: where the first path is not shared memory there is none") {
  run_ranks(
      2,
      [](Rank &self, int) {
        CHECK(finish(self.comm, op(DICOMM_BARRIER, DICOMM_UINT8)) == DICOMM_OK);
        CHECK(counted(self.comm, "operations") == -1);
      },
      1, "", [](int rank, dicomm_context_options &options) { options.paths = rank == 0 ? "tcp" : ""; });
}

TEST_CASE("arena: memory that is not this communicator's is refused") {
  Reactor reactor;
  struct Nobody final : ArenaOwner {
    void on_other_call(int, int64_t, const Fingerprint &, const Fingerprint &) override {}
    void wake(int) override {}
  } nobody;
  Arena made(reactor, nobody, 7, 0, 2), same(reactor, nobody, 7, 1, 2), other(reactor, nobody, 8, 1, 2),
      larger(reactor, nobody, 7, 1, 3);
  REQUIRE(made.create().ok());
  CHECK(same.adopt(UniqueFd(::dup(made.fd()))).ok());
  CHECK(other.adopt(UniqueFd(::dup(made.fd()))).code() == DICOMM_PROTOCOL);
  CHECK(larger.adopt(UniqueFd(::dup(made.fd()))).code() == DICOMM_PROTOCOL);
}

}  // namespace dicomm::test
