// Conformance suite of ccl/ccl.h. A library joins with one line in a test file:
//
//   DICOMM_CCL_SUITE("nccl double", suite::CclSetup{open_it, make_device});
//
// Ranks are threads, each with a Ccl, a Device and a Stream of its own, as processes would have them; or they
// are processes, where a library wants that (test_mpi.cc). What the library does not declare in its
// capabilities is not asked of it, and a message says so.
#pragma once

#include "ccl_ranks.h"

namespace dicomm::suite::ccl {

inline void says_what_it_is(const CclSetup &setup) {
  run(setup, 1, [](Member &member, int) {
    CHECK(std::string(member.library->name()) != "");
    CHECK(std::string(member.library->vendor()) == member.device->vendor());
    CHECK(member.library->describe() != "");
    CHECK(member.library->capabilities().reduces(DICOMM_FLOAT32, DICOMM_SUM));
    CHECK(member.library->capabilities().moves(DICOMM_FLOAT32));
  });
}

inline void reductions(const CclSetup &setup) {
  const CclCapabilities can = capabilities(setup);
  run_group(setup, kRanks, [&](Member &m, int rank) {
    for (const dicomm_dtype dtype : kDtypes)
      for (const dicomm_reduce op : kOps) {
        if (!can.reduces(dtype, op)) continue;
        if (op == DICOMM_PREMUL_SUM) {
          unsigned char factor[16];
          test::encode(format_of(dtype), factor_of(rank), factor);
          m.check(m.group->set_factor(factor, dtype), "set_factor");
        }
        for (const size_t count : kCounts) {
          const size_t n = count * parts(dtype);
          const auto want = [&](size_t i) { return expected(dtype, op, kRanks, i); };
          const void *input = m.put(dtype, numbers_of(dtype, rank, n));

          void *out = m.room(dtype, n);
          m.check(m.group->allreduce(input, out, count, dtype, op, *m.stream), "allreduce");
          check_numbers("allreduce", dtype, op, m.get(dtype, out, n), want);

          void *in_place = m.put(dtype, numbers_of(dtype, rank, n));
          m.check(m.group->allreduce(in_place, in_place, count, dtype, op, *m.stream), "allreduce");
          check_numbers("allreduce in place", dtype, op, m.get(dtype, in_place, n), want);

          const int root = static_cast<int>(count % kRanks);
          void *at_root = rank == root ? m.room(dtype, n) : nullptr;
          m.check(m.group->reduce(input, at_root, count, dtype, op, root, *m.stream), "reduce");
          if (rank == root) check_numbers("reduce", dtype, op, m.get(dtype, at_root, n), want);
          check_numbers("input", dtype, DICOMM_SUM, m.get(dtype, input, n),
                        [&](size_t i) { return given(dtype, rank, i); });

          void *blocks = m.put(dtype, numbers_of(dtype, rank, n * kRanks));
          void *block = m.room(dtype, n);
          m.check(m.group->reduce_scatter(blocks, block, count, dtype, op, *m.stream), "reduce_scatter");
          const auto own = [&](size_t i) { return want(static_cast<size_t>(rank) * n + i); };
          check_numbers("reduce_scatter", dtype, op, m.get(dtype, block, n), own);
          auto *place = static_cast<char *>(blocks) + static_cast<size_t>(rank) * n * format_of(dtype).bytes;
          m.check(m.group->reduce_scatter(blocks, place, count, dtype, op, *m.stream), "reduce_scatter");
          check_numbers("reduce_scatter in place", dtype, op, m.get(dtype, place, n), own);
          m.forget();
        }
      }
  });
}

inline void what_it_does_not_reduce(const CclSetup &setup) {
  const CclCapabilities can = capabilities(setup);
  for (const dicomm_dtype dtype : kDtypes)
    for (const dicomm_reduce op : kOps) {
      if (can.reduces(dtype, op)) continue;
      run_group(setup, 1, [&](Member &m, int) {  // no other rank is inside
        void *data = m.room(dtype, 4);
        CHECK(m.group->allreduce(data, data, 1, dtype, op, *m.stream).code() == DICOMM_NOT_SUPPORTED);
        CHECK(m.group->reduce(data, data, 1, dtype, op, 0, *m.stream).code() == DICOMM_NOT_SUPPORTED);
        CHECK(m.group->reduce_scatter(data, data, 1, dtype, op, *m.stream).code() == DICOMM_NOT_SUPPORTED);
      });
      return;  // one is enough
    }
}

inline void moves(const CclSetup &setup) {
  const CclCapabilities can = capabilities(setup);
  run_group(setup, kRanks, [&](Member &m, int rank) {
    for (const dicomm_dtype dtype : kDtypes) {
      if (!can.moves(dtype)) continue;
      for (const size_t count : kCounts) {
        const size_t n = count * parts(dtype);
        void *const mine = m.put(dtype, numbers_of(dtype, rank, n));
        for (int root = 0; root < kRanks; ++root) {
          void *out = m.room(dtype, n);
          const auto want = [&](size_t i) { return given(dtype, root, i); };
          m.check(m.group->broadcast(mine, out, count, dtype, root, *m.stream), "broadcast");
          check_numbers("broadcast", dtype, DICOMM_SUM, m.get(dtype, out, n), want);
          void *in_place = rank == root ? mine : out;
          m.check(m.group->broadcast(in_place, in_place, count, dtype, root, *m.stream), "broadcast");
          check_numbers("broadcast in place", dtype, DICOMM_SUM, m.get(dtype, in_place, n), want);
        }
        void *all = m.room(dtype, n * kRanks);
        const auto want = [&](size_t i) { return given(dtype, static_cast<int>(i / n), i % n); };
        m.check(m.group->allgather(mine, all, count, dtype, *m.stream), "allgather");
        check_numbers("allgather", dtype, DICOMM_SUM, m.get(dtype, all, n * kRanks), want);
      }
    }
  });
}

inline void sends_and_receives(const CclSetup &setup) {
  if (!capabilities(setup).send_recv) {
    MESSAGE("skipped: this library has no send and receive");
    run_group(setup, 2, [](Member &m, int rank) {
      void *data = m.room(DICOMM_FLOAT32, 1);
      CHECK(m.group->send(data, 1, DICOMM_FLOAT32, 1 - rank, *m.stream).code() == DICOMM_NOT_SUPPORTED);
      CHECK(m.group->recv(data, 1, DICOMM_FLOAT32, 1 - rank, *m.stream).code() == DICOMM_NOT_SUPPORTED);
    });
    return;
  }
  run_group(setup, kRanks, [](Member &m, int rank) {
    const CclCapabilities can = m.library->capabilities();
    for (const dicomm_dtype dtype : {DICOMM_FLOAT32, DICOMM_UINT8, DICOMM_COMPLEX64})
      for (const size_t count : kCounts) {
        if (!can.moves(dtype)) continue;
        const size_t n = count * parts(dtype);
        // One way, from rank to rank.
        void *token = m.put(dtype, numbers_of(dtype, rank, n));
        if (rank > 0) m.check(m.group->recv(token, count, dtype, rank - 1, *m.stream), "recv");
        if (rank + 1 < kRanks) m.check(m.group->send(token, count, dtype, rank + 1, *m.stream), "send");
        check_numbers("relay", dtype, DICOMM_SUM, m.get(dtype, token, n),
                      [&](size_t i) { return given(dtype, 0, i); });
        // All to all, in one group: every rank sends before it receives.
        std::vector<void *> out(kRanks), in(kRanks);
        for (int r = 0; r < kRanks; ++r) {
          out[r] = m.put(dtype, numbers_of(dtype, rank + r, n));
          in[r] = m.room(dtype, n);
        }
        m.check(m.group->begin(), "begin");
        for (int r = 0; r < kRanks; ++r)
          if (r != rank) m.check(m.group->send(out[r], count, dtype, r, *m.stream), "send");
        for (int r = 0; r < kRanks; ++r)
          if (r != rank) m.check(m.group->recv(in[r], count, dtype, r, *m.stream), "recv");
        m.check(m.group->end(), "end");
        for (int r = 0; r < kRanks; ++r)
          if (r != rank)
            check_numbers("alltoall", dtype, DICOMM_SUM, m.get(dtype, in[r], n),
                          [&](size_t i) { return given(dtype, rank + r, i); });
      }
    m.check(m.group->begin(), "begin");
    m.check(m.group->end(), "end of nothing");
  });
}

// Copies, collectives and copies of one stream, none of which the host waits for.
inline void keeps_the_stream_order(const CclSetup &setup) {
  run_group(setup, 2, [](Member &m, int rank) {
    constexpr size_t n = 4096;
    constexpr int rounds = 6;
    void *data = m.put(DICOMM_FLOAT32, numbers_of(DICOMM_FLOAT32, rank, n));
    void *other = m.room(DICOMM_FLOAT32, n);
    for (int round = 0; round < rounds; ++round) {
      m.check(m.group->allreduce(data, other, n, DICOMM_FLOAT32, DICOMM_SUM, *m.stream), "allreduce");
      m.check(m.stream->copy_on_device(data, other, n * sizeof(float)), "copy_on_device");
    }
    check_numbers("doubled sum", DICOMM_FLOAT32, DICOMM_SUM, m.get(DICOMM_FLOAT32, data, n), [&](size_t i) {
      return expected(DICOMM_FLOAT32, DICOMM_SUM, 2, i) * std::ldexp(1.0, rounds - 1);
    });
  });
}

inline void several_groups(const CclSetup &setup) {
  const CclId first = make_id(setup), second = make_id(setup);
  CHECK(first != second);
  run(setup, kRanks, [&](Member &m, int rank) {
    m.check(m.library->join(first, rank, kRanks, *m.device, kPatience, m.group), "join");
    if (!m.group) return;
    std::unique_ptr<CclGroup> part;  // of ranks 0 and 1, in the other order
    if (rank < 2) m.check(m.library->join(second, 1 - rank, 2, *m.device, kPatience, part), "join");
    void *data = m.put(DICOMM_FLOAT32, {rank + 1.0});
    m.check(m.group->allreduce(data, data, 1, DICOMM_FLOAT32, DICOMM_SUM, *m.stream), "allreduce");
    if (part) m.check(part->allreduce(data, data, 1, DICOMM_FLOAT32, DICOMM_SUM, *m.stream), "allreduce");
    CHECK(m.get(DICOMM_FLOAT32, data, 1)[0] == (rank < 2 ? 12 : 6));
    if (part) m.check(part->close(kPatience), "close");
    m.check(m.group->close(kPatience), "close");
  });
}

inline void wrong_arguments(const CclSetup &setup) {
  const CclId id = make_id(setup);
  run(setup, 1, [&](Member &m, int) {
    const auto joined = [&](const CclId &with, int rank, int size) {
      return m.library->join(with, rank, size, *m.device, kSecond, m.group).code();
    };
    CHECK(joined(CclId(1), 0, 1) == DICOMM_INVALID_ARGUMENT);
    CHECK(joined(id, 1, 1) == DICOMM_INVALID_ARGUMENT);
    CHECK(joined(id, -1, 1) == DICOMM_INVALID_ARGUMENT);
    CHECK(joined(id, 0, 0) == DICOMM_INVALID_ARGUMENT);
    CHECK_FALSE(m.group);
  });
}

// The ranks that came are told so in time, and another group can be made.
inline void a_rank_does_not_come(const CclSetup &setup) {
  const CclId id = make_id(setup);
  run(setup, 2, [&](Member &m, int rank) {
    const Nanos start = now();
    const Status joined = m.library->join(id, rank, 3, *m.device, kSecond / 2, m.group);
    INFO(joined.message());
    CHECK(joined.code() == DICOMM_TIMED_OUT);
    CHECK(now() - start >= kSecond / 2);
    CHECK(now() - start < 3 * kSecond);
    CHECK_FALSE(m.group);
  });
  run_group(setup, 2, [](Member &m, int rank) {
    void *data = m.put(DICOMM_FLOAT32, {rank + 1.0});
    m.check(m.group->allreduce(data, data, 1, DICOMM_FLOAT32, DICOMM_SUM, *m.stream), "allreduce");
    CHECK(m.get(DICOMM_FLOAT32, data, 1)[0] == 3);
  });
}

// Rank 1 never makes the call that rank 0 has made; another thread aborts.
inline void abort_frees_who_waits(const CclSetup &setup) {
  if (!capabilities(setup).aborts) {
    MESSAGE("skipped: this library cannot free ranks that wait inside it");
    return;
  }
  const CclId id = make_id(setup);
  const Nanos away =
      setup.processes ? 2 * kSecond : kPatience;  // another process cannot be told that it is over
  std::atomic<bool> over{false};
  run(setup, 2, [&](Member &m, int rank) {
    if (!m.check(m.library->join(id, rank, 2, *m.device, kPatience, m.group), "join")) {
      over = true;
      return;
    }
    if (rank == 1) {
      const Nanos deadline = deadline_after(away);
      while (!over && now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      m.group->abort(kSecond);
      return;
    }
    void *data = m.room(DICOMM_FLOAT32, 16);
    std::thread breaker([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      m.group->abort(5 * kSecond);
      m.group->abort(5 * kSecond);  // does nothing
    });
    const Nanos start = now();
    const Status called = m.group->allreduce(data, data, 16, DICOMM_FLOAT32, DICOMM_SUM, *m.stream);
    INFO(called.message());
    CHECK((called.ok() || called.code() == DICOMM_ABORTED));
    breaker.join();
    CHECK(m.drain(5 * kSecond));
    CHECK(now() - start < 5 * kSecond);
    CHECK(m.group->allreduce(data, data, 16, DICOMM_FLOAT32, DICOMM_SUM, *m.stream).code() == DICOMM_ABORTED);
    CHECK(m.group->broadcast(data, data, 16, DICOMM_FLOAT32, 0, *m.stream).code() == DICOMM_ABORTED);
    CHECK(m.group->async_error().code() == DICOMM_ABORTED);
    CHECK(m.group->close(kSecond).code() == DICOMM_ABORTED);
    over = true;
  });
}

inline void dropped_without_close(const CclSetup &setup) {
  const CclId id = make_id(setup);
  run(setup, 2, [&](Member &m, int rank) {
    m.check(m.library->join(id, rank, 2, *m.device, kPatience, m.group), "join");
    const Nanos start = now();
    m.group.reset();
    CHECK(now() - start < 5 * kSecond);
  });
}

}  // namespace dicomm::suite::ccl

#define DICOMM_CCL_CASE(name, scenario, ...) \
  TEST_CASE("ccl " name ": " #scenario) { ::dicomm::suite::ccl::scenario(__VA_ARGS__); }

#define DICOMM_CCL_SUITE(name, ...)                           \
  DICOMM_CCL_CASE(name, says_what_it_is, __VA_ARGS__)         \
  DICOMM_CCL_CASE(name, reductions, __VA_ARGS__)              \
  DICOMM_CCL_CASE(name, what_it_does_not_reduce, __VA_ARGS__) \
  DICOMM_CCL_CASE(name, moves, __VA_ARGS__)                   \
  DICOMM_CCL_CASE(name, sends_and_receives, __VA_ARGS__)      \
  DICOMM_CCL_CASE(name, keeps_the_stream_order, __VA_ARGS__)  \
  DICOMM_CCL_CASE(name, several_groups, __VA_ARGS__)          \
  DICOMM_CCL_CASE(name, wrong_arguments, __VA_ARGS__)         \
  DICOMM_CCL_CASE(name, a_rank_does_not_come, __VA_ARGS__)    \
  DICOMM_CCL_CASE(name, abort_frees_who_waits, __VA_ARGS__)   \
  DICOMM_CCL_CASE(name, dropped_without_close, __VA_ARGS__)
