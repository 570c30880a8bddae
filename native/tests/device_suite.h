// Conformance suite of device/device.h. A device joins with one line in a test file:
//
//   DICOMM_DEVICE_SUITE("sim", make_it)
//
// where make_it() returns an open Device. What a device cannot do by its capabilities is checked to be
// refused.
#pragma once

#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "device/device.h"

namespace dicomm::suite {

using MakeDevice = std::function<std::unique_ptr<Device>()>;

inline constexpr int64_t kDeviceLimit = 20 * kSecond;

#define DICOMM_SUITE_OK(expression)                          \
  do {                                                       \
    const Status suite_status = (expression);                \
    if (!suite_status.ok()) MESSAGE(suite_status.message()); \
    REQUIRE(suite_status.ok());                              \
  } while (0)

inline std::vector<uint8_t> bytes_from(uint32_t seed, size_t size) {
  std::vector<uint8_t> out(size);
  for (auto &byte : out) {
    seed = seed * 1664525 + 1013904223;
    byte = static_cast<uint8_t>(seed >> 24);
  }
  return out;
}

// Until the event is done; its status.
inline Status finish(Event &event) {
  const Nanos deadline = deadline_after(kDeviceLimit);
  for (;;) {
    bool done = false;
    const Status status = event.query(done);
    if (done || !status.ok()) return status;
    REQUIRE(now() < deadline);
    std::this_thread::yield();
  }
}

inline Status finish(Stream &stream) {
  std::unique_ptr<Event> event;
  DICOMM_TRY(stream.record(event));
  return finish(*event);
}

// A device with one stream, and memory on either side to copy through.
struct Bench {
  explicit Bench(const MakeDevice &make, size_t bytes = 1 << 20) : device(make()) {
    DICOMM_SUITE_OK(device->make_stream(stream));
    DICOMM_SUITE_OK(device->allocate(bytes, chip));
    DICOMM_SUITE_OK(device->allocate_pinned(bytes, host));
  }
  ~Bench() {
    stream.reset();
    chip.reset();
    host.reset();
    CHECK(device->close(kDeviceLimit).ok());
  }
  void put(const void *from, void *to, size_t bytes) {
    std::memcpy(host->data(), from, bytes);
    DICOMM_SUITE_OK(stream->copy_to_device(to, host->data(), bytes));
    DICOMM_SUITE_OK(finish(*stream));
  }
  std::vector<uint8_t> get(const void *from, size_t bytes) {
    std::memset(host->data(), 0xee, bytes);
    DICOMM_SUITE_OK(stream->copy_to_host(host->data(), from, bytes));
    DICOMM_SUITE_OK(finish(*stream));
    const auto *data = static_cast<const uint8_t *>(host->data());
    return {data, data + bytes};
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Allocation> chip, host;
};

inline uint8_t *at(const std::unique_ptr<Allocation> &memory, size_t offset = 0) {
  return static_cast<uint8_t *>(memory->data()) + offset;
}

inline void memory_and_ownership(const MakeDevice &make) {
  Bench bench(make, 4096);
  CHECK(bench.chip->size() == 4096);
  CHECK(bench.host->size() == 4096);
  CHECK(bench.device->owns(bench.chip->data()));
  CHECK(bench.device->owns(at(bench.chip, 4095)));
  CHECK_FALSE(bench.device->owns(bench.host->data()));
  CHECK_FALSE(bench.device->owns(at(bench.host, 4095)));
  CHECK_FALSE(bench.device->owns(nullptr));
  std::unique_ptr<Allocation> none;
  DICOMM_SUITE_OK(bench.device->allocate(0, none));
  CHECK(none->size() == 0);
  CHECK_FALSE(bench.device->describe().empty());
}

inline void copies_both_ways(const MakeDevice &make) {
  Bench bench(make);
  for (const size_t size : {size_t{1}, size_t{1000}, size_t{300001}}) {
    const auto data = bytes_from(static_cast<uint32_t>(size), size);
    bench.put(data.data(), at(bench.chip, 64), size);
    CHECK(bench.get(at(bench.chip, 64), size) == data);
    DICOMM_SUITE_OK(bench.stream->copy_on_device(at(bench.chip, 400000), at(bench.chip, 64), size));
    CHECK(bench.get(at(bench.chip, 400000), size) == data);
  }
  DICOMM_SUITE_OK(bench.stream->copy_to_host(bench.host->data(), bench.chip->data(), 0));
  DICOMM_SUITE_OK(finish(*bench.stream));
}

inline void work_is_done_in_order(const MakeDevice &make) {
  Bench bench(make);
  constexpr size_t kSize = 1000, kSteps = 100;
  const auto data = bytes_from(7, kSize);
  std::memcpy(bench.host->data(), data.data(), kSize);
  DICOMM_SUITE_OK(bench.stream->copy_to_device(bench.chip->data(), bench.host->data(), kSize));
  for (size_t i = 0; i < kSteps; ++i)  // each step needs the one before
    DICOMM_SUITE_OK(
        bench.stream->copy_on_device(at(bench.chip, (i + 1) * kSize), at(bench.chip, i * kSize), kSize));
  DICOMM_SUITE_OK(bench.stream->copy_to_host(at(bench.host, kSize), at(bench.chip, kSteps * kSize), kSize));
  DICOMM_SUITE_OK(finish(*bench.stream));
  CHECK(std::memcmp(at(bench.host, kSize), data.data(), kSize) == 0);
}

inline void streams_wait_for_events(const MakeDevice &make) {
  Bench bench(make);
  std::unique_ptr<Stream> second;
  DICOMM_SUITE_OK(bench.device->make_stream(second));
  constexpr size_t kSize = 200000;
  for (uint32_t round = 0; round < 10; ++round) {
    const auto data = bytes_from(round, kSize);
    std::memcpy(bench.host->data(), data.data(), kSize);
    DICOMM_SUITE_OK(bench.stream->copy_to_device(bench.chip->data(), bench.host->data(), kSize));
    std::unique_ptr<Event> written;
    DICOMM_SUITE_OK(bench.stream->record(written));
    DICOMM_SUITE_OK(second->wait(*written));
    written.reset();
    DICOMM_SUITE_OK(second->copy_to_host(at(bench.host, kSize), bench.chip->data(), kSize));
    DICOMM_SUITE_OK(finish(*second));
    CHECK(std::memcmp(at(bench.host, kSize), data.data(), kSize) == 0);
  }
}

inline void events_outlive_their_stream(const MakeDevice &make) {
  Bench bench(make);
  std::unique_ptr<Stream> second;
  DICOMM_SUITE_OK(bench.device->make_stream(second));
  DICOMM_SUITE_OK(second->copy_to_host(bench.host->data(), bench.chip->data(), 1000));
  std::unique_ptr<Event> event, dropped;
  DICOMM_SUITE_OK(second->record(dropped));
  dropped.reset();  // while it is pending
  DICOMM_SUITE_OK(second->record(event));
  second.reset();
  bool done = false;
  DICOMM_SUITE_OK(event->query(done));
  CHECK(done);
}

inline void notified_once_behind_the_work(const MakeDevice &make) {
  Bench bench(make);
  struct Seen {
    Bench *bench;
    std::vector<uint8_t> data;
    std::atomic<int> calls{0};
    std::atomic<bool> equal{false};
    std::thread::id thread;
  } seen{&bench, bytes_from(3, 500000), {}, {}, {}};
  bench.put(seen.data.data(), bench.chip->data(), seen.data.size());
  std::memset(bench.host->data(), 0, seen.data.size());
  DICOMM_SUITE_OK(bench.stream->copy_to_host(bench.host->data(), bench.chip->data(), seen.data.size()));
  DICOMM_SUITE_OK(bench.stream->notify(
      [](void *arg) {
        auto &self = *static_cast<Seen *>(arg);
        self.equal = std::memcmp(self.bench->host->data(), self.data.data(), self.data.size()) == 0;
        self.thread = std::this_thread::get_id();
        ++self.calls;
      },
      &seen));
  DICOMM_SUITE_OK(finish(*bench.stream));
  const Nanos deadline = deadline_after(kDeviceLimit);
  while (seen.calls == 0 && now() < deadline) std::this_thread::yield();
  CHECK(seen.calls == 1);
  CHECK(seen.equal);
  CHECK(seen.thread != std::this_thread::get_id());
}

inline void a_wrapped_stream_is_the_same_stream(const MakeDevice &make) {
  Bench bench(make);
  std::unique_ptr<Stream> second;
  DICOMM_SUITE_OK(bench.device->wrap(bench.stream->native(), second));
  CHECK(second->native() == bench.stream->native());
  const auto data = bytes_from(5, 100000);
  std::memcpy(bench.host->data(), data.data(), data.size());
  DICOMM_SUITE_OK(bench.stream->copy_to_device(bench.chip->data(), bench.host->data(), data.size()));
  DICOMM_SUITE_OK(second->copy_to_host(at(bench.host, 200000), bench.chip->data(), data.size()));
  second.reset();  // leaves the stream as it is
  DICOMM_SUITE_OK(finish(*bench.stream));
  CHECK(std::memcmp(at(bench.host, 200000), data.data(), data.size()) == 0);
  std::unique_ptr<Stream> standard;
  DICOMM_SUITE_OK(bench.device->wrap(nullptr, standard));
  CHECK(bench.get(bench.chip->data(), data.size()) == data);
  DICOMM_SUITE_OK(finish(*standard));
}

// Bits as those of device/host, every form and dtype that an allreduce goes through.
inline void reduces_like_the_host(const MakeDevice &make) {
  Bench bench(make);
  constexpr uint64_t kCount = 1001;
  const bool reduces = bench.device->capabilities().reduces;
  for (const dicomm_dtype dtype : {DICOMM_FLOAT32, DICOMM_BFLOAT16, DICOMM_FLOAT16, DICOMM_INT32,
                                   DICOMM_UINT8, DICOMM_FLOAT64, DICOMM_COMPLEX64}) {
    for (const dicomm_reduce op : {DICOMM_SUM, DICOMM_MAX, DICOMM_AVG}) {
      if (!reduction_supported(dtype, op)) continue;
      Arithmetic arithmetic{dtype, op, 3, {}};
      const size_t size = kCount * dicomm_dtype_size(dtype);
      const size_t wide = kCount * dicomm_dtype_size(accumulation_type(dtype));
      const auto a = bytes_from(11, size), b = bytes_from(13, size);
      std::vector<uint8_t> expected(wide), expected_out(size);
      reduce_elements(arithmetic, expected.data(), Form::wide, a.data(), Form::raw, b.data(), Form::raw,
                      kCount, false);
      copy_elements(arithmetic, expected_out.data(), Form::plain, expected.data(), Form::wide, kCount, true);
      bench.put(a.data(), bench.chip->data(), size);
      bench.put(b.data(), at(bench.chip, 100000), size);
      uint8_t *const sum = at(bench.chip, 200000), *const out = at(bench.chip, 300000);
      const Status status = bench.stream->reduce(arithmetic, sum, Form::wide, bench.chip->data(), Form::raw,
                                                 at(bench.chip, 100000), Form::raw, kCount, false);
      const Status finished =
          bench.stream->copy_convert(arithmetic, out, Form::plain, sum, Form::wide, kCount, true);
      if (!reduces) {
        CHECK(status.code() == DICOMM_NOT_SUPPORTED);
        CHECK(finished.code() == DICOMM_NOT_SUPPORTED);
        return;
      }
      DICOMM_SUITE_OK(status);
      DICOMM_SUITE_OK(finished);
      CHECK(bench.get(sum, wide) == expected);
      CHECK(bench.get(out, size) == expected_out);
    }
  }
}

inline void exports_or_says_that_it_does_not(const MakeDevice &make) {
  Bench bench(make);
  DmaBuf out;
  const Status status = bench.device->export_dmabuf(bench.chip->data(), 4096, out);
  if (!bench.device->capabilities().exports_dmabuf) CHECK(status.code() == DICOMM_NOT_SUPPORTED);
  if (status.ok()) CHECK(out.fd >= 0);
}

inline void several_threads_at_once(const MakeDevice &make) {
  Bench bench(make);
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::unique_ptr<Stream> stream;
      std::unique_ptr<Allocation> chip, host;
      constexpr size_t kSize = 50000;
      if (!bench.device->make_stream(stream).ok() || !bench.device->allocate(kSize, chip).ok() ||
          !bench.device->allocate_pinned(2 * kSize, host).ok())
        return;
      const auto data = bytes_from(t, kSize);
      std::memcpy(host->data(), data.data(), kSize);
      std::unique_ptr<Event> event;
      if (!stream->copy_to_device(chip->data(), host->data(), kSize).ok() ||
          !stream->copy_to_host(at(host, kSize), chip->data(), kSize).ok() || !finish(*stream).ok())
        return;
      right += std::memcmp(at(host, kSize), data.data(), kSize) == 0;
    });
  }
  for (auto &thread : threads) thread.join();
  CHECK(right == 4);
}

}  // namespace dicomm::suite

#define DICOMM_DEVICE_SCENARIOS(X, ...)               \
  X(memory_and_ownership, __VA_ARGS__)                \
  X(copies_both_ways, __VA_ARGS__)                    \
  X(work_is_done_in_order, __VA_ARGS__)               \
  X(streams_wait_for_events, __VA_ARGS__)             \
  X(events_outlive_their_stream, __VA_ARGS__)         \
  X(notified_once_behind_the_work, __VA_ARGS__)       \
  X(a_wrapped_stream_is_the_same_stream, __VA_ARGS__) \
  X(reduces_like_the_host, __VA_ARGS__)               \
  X(exports_or_says_that_it_does_not, __VA_ARGS__)    \
  X(several_threads_at_once, __VA_ARGS__)

#define DICOMM_DEVICE_CASE(scenario, name, make) \
  TEST_CASE("device " name ": " #scenario) { ::dicomm::suite::scenario(make); }

#define DICOMM_DEVICE_SUITE(name, make) DICOMM_DEVICE_SCENARIOS(DICOMM_DEVICE_CASE, name, make)
