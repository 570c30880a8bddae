// The collective libraries of simulated brands: ranks as threads, each with a chip and a library of its own.

#include <cstring>
#include <thread>

#include "ccl/sim/library.h"
#include "device/sim/device.h"
#include "device_suite.h"

namespace dicomm::test {

namespace {

constexpr Nanos kLimit = 20 * kSecond;

struct Member {
  explicit Member(SimProfile profile) : device(profile, 0), ccl({std::move(profile)}) {
    DICOMM_SUITE_OK(device.make_stream(stream));
  }
  ~Member() {
    group.reset();
    stream.reset();
    CHECK(device.close(kLimit).ok());
  }
  SimDevice device;
  SimCcl ccl;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<CclGroup> group;
};

// Runs body(member, rank) on a thread per profile; rank 0 makes the id. join is the body's.
void run(const std::vector<SimProfile> &profiles,
         const std::function<void(Member &, int rank, const CclId &)> &body) {
  std::vector<std::unique_ptr<Member>> members;
  for (const SimProfile &profile : profiles) members.push_back(std::make_unique<Member>(profile));
  CclId id;
  DICOMM_SUITE_OK(members[0]->ccl.make_id(id));
  std::vector<std::thread> threads;
  for (size_t r = 0; r < members.size(); ++r)
    threads.emplace_back([&, r] { body(*members[r], static_cast<int>(r), id); });
  for (auto &thread : threads) thread.join();
}

void run_joined(int size, const std::function<void(Member &, int rank)> &body, SimProfile profile = {}) {
  profile.brand = "alpha";
  run(std::vector<SimProfile>(static_cast<size_t>(size), profile),
      [&](Member &self, int rank, const CclId &id) {
        const Status joined = self.ccl.join(id, rank, size, self.device, kLimit, self.group);
        if (!joined.ok()) MESSAGE(joined.message());
        REQUIRE(joined.ok());
        body(self, rank);
      });
}

using Floats = std::vector<float>;

TEST_CASE("a simulated library computes every operation of the contract") {
  for (const int size : {1, 3}) {
    CAPTURE(size);
    run_joined(size, [size](Member &self, int rank) {
      CclGroup &group = *self.group;
      Stream &stream = *self.stream;
      CHECK(group.rank() == rank);
      CHECK(group.size() == size);
      constexpr uint64_t kCount = 5000;
      const auto n = static_cast<uint64_t>(size);
      const auto r = static_cast<float>(rank);
      Floats in(kCount), sum(kCount), largest(kCount, -1), shared(kCount, r), all(kCount * n), part(kCount);
      Floats sent(kCount * n);
      for (uint64_t i = 0; i < kCount; ++i) in[i] = static_cast<float>(i % 10) + r;
      for (uint64_t i = 0; i < kCount * n; ++i) sent[i] = static_cast<float>(i / kCount) + r;
      CHECK(group.allreduce(in.data(), sum.data(), kCount, DICOMM_FLOAT32, DICOMM_SUM, stream).ok());
      CHECK(
          group.reduce(in.data(), largest.data(), kCount, DICOMM_FLOAT32, DICOMM_MAX, size - 1, stream).ok());
      CHECK(group.broadcast(in.data(), shared.data(), kCount, DICOMM_FLOAT32, size - 1, stream).ok());
      CHECK(group.allgather(in.data(), all.data(), kCount, DICOMM_FLOAT32, stream).ok());
      CHECK(group.reduce_scatter(sent.data(), part.data(), kCount, DICOMM_FLOAT32, DICOMM_AVG, stream).ok());
      CHECK(group.allreduce(nullptr, nullptr, 0, DICOMM_FLOAT32, DICOMM_SUM, stream).ok());
      CHECK(suite::finish(stream).ok());
      CHECK(group.async_error().ok());
      bool right = true;
      for (uint64_t i = 0; i < kCount; ++i) {
        const auto digit = static_cast<float>(i % 10), s = static_cast<float>(size);
        right = right && sum[i] == digit * s + s * (s - 1) / 2;
        right = right && largest[i] == (rank == size - 1 ? digit + s - 1 : -1);
        right = right && shared[i] == digit + s - 1;
        right = right && part[i] == r + (s - 1) / 2;
        for (uint64_t peer = 0; peer < n; ++peer)
          right = right && all[peer * kCount + i] == digit + static_cast<float>(peer);
      }
      CHECK(right);
      CHECK(group.close(kLimit).ok());
    });
  }
}

TEST_CASE("a simulated library's operations in place") {
  run_joined(3, [](Member &self, int rank) {
    constexpr uint64_t kCount = 1000;
    const auto mine = static_cast<size_t>(rank) * kCount;
    std::vector<int32_t> x(kCount, rank + 1), all(3 * kCount, -1), parts(3 * kCount, rank);
    std::fill_n(all.begin() + static_cast<ptrdiff_t>(mine), kCount, rank);
    CHECK(self.group->allreduce(x.data(), x.data(), kCount, DICOMM_INT32, DICOMM_PROD, *self.stream).ok());
    CHECK(self.group->allgather(all.data() + mine, all.data(), kCount, DICOMM_INT32, *self.stream).ok());
    CHECK(self.group
              ->reduce_scatter(parts.data(), parts.data() + mine, kCount, DICOMM_INT32, DICOMM_SUM,
                               *self.stream)
              .ok());
    CHECK(suite::finish(*self.stream).ok());
    CHECK(x == std::vector<int32_t>(kCount, 6));
    for (size_t i = 0; i < all.size(); ++i) CHECK_MESSAGE(all[i] == static_cast<int>(i / kCount), i);
    CHECK(std::vector<int32_t>(parts.begin() + static_cast<ptrdiff_t>(mine),
                               parts.begin() + static_cast<ptrdiff_t>(mine + kCount)) ==
          std::vector<int32_t>(kCount, 3));
    CHECK(self.group->close(kLimit).ok());
  });
}

TEST_CASE("grouped sends and receives of a simulated library wait for one another, on any stream") {
  run_joined(3, [](Member &self, int rank) {
    std::unique_ptr<Stream> second;
    REQUIRE(self.device.make_stream(second).ok());
    constexpr size_t kCount = 100000;
    std::vector<int64_t> out(3 * kCount), in(3 * kCount, -1);
    for (size_t i = 0; i < out.size(); ++i) out[i] = rank * 10 + static_cast<int>(i / kCount);
    CHECK(self.group->begin().ok());
    for (int peer = 0; peer < 3; ++peer) {
      const auto at = static_cast<size_t>(peer) * kCount;
      CHECK(self.group->send(out.data() + at, kCount, DICOMM_INT64, peer, *self.stream).ok());
      CHECK(self.group->recv(in.data() + at, kCount, DICOMM_INT64, peer, *second).ok());
    }
    CHECK(self.group->end().ok());
    CHECK(suite::finish(*second).ok());
    bool right = true;
    for (size_t i = 0; i < in.size(); ++i) right = right && in[i] == static_cast<int>(i / kCount) * 10 + rank;
    CHECK(right);
    CHECK(self.group->close(kLimit).ok());
    second.reset();
  });
}

TEST_CASE("a simulated library refuses ranks of another brand, and all ranks say whose") {
  run({{.brand = "alpha"}, {.brand = "beta"}, {.brand = "alpha"}}, [](Member &self, int rank,
                                                                      const CclId &id) {
    const Status joined = self.ccl.join(id, rank, 3, self.device, kLimit, self.group);
    CHECK(joined.code() == DICOMM_CCL_FAILED);
    const std::string text = joined.message();
    CAPTURE(text);
    CHECK(text.find("alpha") != std::string::npos);
    CHECK(text.find("beta") != std::string::npos);
    CHECK(text.find(rank == 1 ? "rank 0 has one of alpha" : "rank 1 has one of beta") != std::string::npos);
    CHECK(self.group == nullptr);
  });
}

TEST_CASE("joining a simulated library ends in time and names who is missing") {
  run({{.brand = "alpha"}, {.brand = "alpha"}}, [](Member &self, int rank, const CclId &id) {
    const Nanos begun = now();
    const Status joined = self.ccl.join(id, rank, 3, self.device, kSecond / 2, self.group);
    CHECK(joined.code() == DICOMM_TIMED_OUT);
    CHECK(now() - begun < 5 * kSecond);
    CHECK(joined.message().find("rank 2 of 3 did not join") != std::string::npos);
  });
}

TEST_CASE("what a simulated library lacks is declared and refused") {
  SimProfile profile;
  profile.avg = profile.send_recv = false;
  profile.dtypes &= ~(uint64_t{1} << DICOMM_BFLOAT16);
  run_joined(
      1,
      [](Member &self, int) {
        const CclCapabilities can = self.ccl.capabilities();
        CHECK_FALSE(can.send_recv);
        CHECK_FALSE(can.moves(DICOMM_BFLOAT16));
        CHECK(can.moves(DICOMM_FLOAT16));
        CHECK_FALSE(can.reduces(DICOMM_BFLOAT16, DICOMM_SUM));
        CHECK_FALSE(can.reduces(DICOMM_FLOAT32, DICOMM_AVG));
        CHECK_FALSE(can.reduces(DICOMM_FLOAT32, DICOMM_PREMUL_SUM));
        CHECK_FALSE(can.reduces(DICOMM_FLOAT32, DICOMM_BAND));
        CHECK(can.reduces(DICOMM_INT32, DICOMM_BAND));
        Floats x(4);
        CclGroup &group = *self.group;
        Stream &stream = *self.stream;
        CHECK(group.allreduce(x.data(), x.data(), 4, DICOMM_FLOAT32, DICOMM_AVG, stream).code() ==
              DICOMM_NOT_SUPPORTED);
        CHECK(group.send(x.data(), 4, DICOMM_FLOAT32, 0, stream).code() == DICOMM_NOT_SUPPORTED);
        CHECK(group.broadcast(x.data(), x.data(), 4, DICOMM_BFLOAT16, 0, stream).code() ==
              DICOMM_NOT_SUPPORTED);
        CHECK(group.broadcast(x.data(), x.data(), 4, DICOMM_FLOAT32, 1, stream).code() ==
              DICOMM_INVALID_ARGUMENT);
      },
      profile);
}

TEST_CASE("aborting a group of a simulated library frees its ranks and the streams go on") {
  run_joined(2, [](Member &self, int rank) {
    Floats x(1000, 1), y(1000, 2);
    if (rank == 0) {  // waits for a rank that never calls
      CHECK(self.group->allreduce(x.data(), x.data(), 1000, DICOMM_FLOAT32, DICOMM_SUM, *self.stream).ok());
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      CHECK(self.group->async_error().ok());
      self.group->abort(kLimit);
    } else {
      const Nanos deadline = deadline_after(kLimit);  // the news reaches the other rank
      while (self.group->async_error().ok() && now() < deadline) {
        Floats z(1);
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        (void)self.group->broadcast(z.data(), z.data(), 1, DICOMM_FLOAT32, 0, *self.stream);
        CHECK(suite::finish(*self.stream).ok());
      }
    }
    CHECK(self.group->async_error().code() == DICOMM_ABORTED);
    CHECK(self.group->allreduce(x.data(), x.data(), 1000, DICOMM_FLOAT32, DICOMM_SUM, *self.stream).code() ==
          DICOMM_ABORTED);
    CHECK(self.stream->copy_on_device(x.data(), y.data(), 4000).ok());
    CHECK(suite::finish(*self.stream).ok());
    CHECK(x == y);
  });
}

TEST_CASE("a rank that leaves a simulated library's group is noticed") {
  run_joined(2, [](Member &self, int rank) {
    if (rank == 1) {
      self.group.reset();
      return;
    }
    Floats x(1000, 1);
    // The group may know it by the time of the call, or learn it afterwards.
    Status error = self.group->allreduce(x.data(), x.data(), 1000, DICOMM_FLOAT32, DICOMM_SUM, *self.stream);
    if (error.ok()) {
      CHECK(suite::finish(*self.stream).ok());
      error = self.group->async_error();
    }
    CHECK_FALSE(error.ok());
    REQUIRE(error.failure() != nullptr);
    CHECK(error.failure()->foreign_domain == "alpha-ccl");
    CHECK(error.failure()->foreign_code != 0);
    CHECK_FALSE(self.group->close(kLimit).ok());
  });
}

TEST_CASE("closing a group whose peers do not come ends in time") {
  run_joined(2, [](Member &self, int rank) {
    Floats x(10, 1);
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(700));
      return;
    }
    CHECK(self.group->allreduce(x.data(), x.data(), 10, DICOMM_FLOAT32, DICOMM_SUM, *self.stream).ok());
    const Nanos begun = now();
    CHECK(self.group->close(200 * kMillisecond).code() == DICOMM_TIMED_OUT);
    CHECK(now() - begun < 5 * kSecond);
  });
}

TEST_CASE("a simulated link takes its time") {
  SimProfile profile;
  profile.link_gbs = 0.1;
  run_joined(
      2,
      [](Member &self, int) {
        std::vector<uint8_t> x(1'000'000, 1);  // each rank sends and receives half of it twice: 10 ms
        const Nanos begun = now();
        CHECK(
            self.group->allreduce(x.data(), x.data(), x.size(), DICOMM_UINT8, DICOMM_SUM, *self.stream).ok());
        CHECK(suite::finish(*self.stream).ok());
        CHECK(now() - begun >= 10 * kMillisecond);
        CHECK(x == std::vector<uint8_t>(x.size(), 2));
        CHECK(self.group->close(kLimit).ok());
      },
      profile);
}

}  // namespace

}  // namespace dicomm::test
