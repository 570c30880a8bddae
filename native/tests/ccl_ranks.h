// What the conformance suite of ccl/ccl.h stands on: ranks as threads, and numbers that every format holds.
#pragma once

#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <complex>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/names.h"
#include "ccl/ccl.h"
#include "number_formats.h"

namespace dicomm::suite {

// Where a library wants each rank to be a process: what those of one run have in common.
struct Processes {
  int rank = 0;
  std::function<void()> meet;                           // returns when all have called it
  std::function<void(std::vector<std::byte> &)> share;  // the first one's bytes, of equal number on all
};

struct CclSetup {
  std::function<Status(std::unique_ptr<Ccl> &)> open;
  std::function<Status(int rank, std::unique_ptr<Device> &)> device;
  std::function<const Processes &()> processes = nullptr;  // without: ranks are threads
};

namespace ccl {

inline constexpr Nanos kPatience = 20 * kSecond;
inline constexpr int kRanks = 3;

inline test::Format format_of(dicomm_dtype dtype) {
  using namespace test;
  static const Format formats[] = {kUint8,    kInt8,    kUint16,  kInt16,   kUint32, kInt32,
                                   kUint64,   kInt64,   kUint8,   kE4m3,    kE5m2,   kFloat16,
                                   kBfloat16, kFloat32, kFloat64, kFloat32, kFloat64};
  return formats[dtype];
}
// Numbers in one element: two in a complex one.
inline int parts(dicomm_dtype dtype) {
  return dtype == DICOMM_COMPLEX64 || dtype == DICOMM_COMPLEX128 ? 2 : 1;
}

#define DICOMM_SUITE_VALUE(name, ...) DICOMM_##name,
inline constexpr dicomm_dtype kDtypes[] = {DICOMM_DTYPE_LIST(DICOMM_SUITE_VALUE)};
inline constexpr dicomm_reduce kOps[] = {DICOMM_REDUCE_LIST(DICOMM_SUITE_VALUE)};
#undef DICOMM_SUITE_VALUE

using Numbers = std::vector<double>;

// One rank, between open and the group's end.
class Member {
 public:
  Member(const CclSetup &setup, int rank) {
    check(setup.open(library), "open");
    check(setup.device(rank, device), "device");
    check(device->make_stream(stream), "make_stream");
  }
  ~Member() {
    group.reset();
    stream.reset();
    library.reset();
    forget();
    check(device->close(kPatience), "Device::close");
  }

  bool check(const Status &status, const char *what) {
    INFO(std::string(what) << ": " << status.message());
    CHECK(status.ok());
    return status.ok();
  }

  void *allocate(size_t bytes) {
    check(device->allocate(bytes, buffers.emplace_back()), "allocate");
    return buffers.back()->data();
  }
  // Device memory that will hold the numbers when what is enqueued so far is done.
  void *put(dicomm_dtype dtype, const Numbers &numbers) {
    const test::Format format = format_of(dtype);
    const size_t bytes = numbers.size() * format.bytes;
    check(device->allocate_pinned(bytes, pinned.emplace_back()), "allocate_pinned");
    auto *host = static_cast<char *>(pinned.back()->data());
    for (size_t i = 0; i < numbers.size(); ++i) test::encode(format, numbers[i], host + i * format.bytes);
    void *data = allocate(bytes);
    check(stream->copy_to_device(data, host, bytes), "copy_to_device");
    return data;
  }
  void *room(dicomm_dtype dtype, size_t numbers) { return put(dtype, Numbers(numbers, 1)); }
  // Waits for the stream.
  Numbers get(dicomm_dtype dtype, const void *data, size_t numbers) {
    const test::Format format = format_of(dtype);
    check(device->allocate_pinned(numbers * format.bytes, pinned.emplace_back()), "allocate_pinned");
    auto *host = static_cast<char *>(pinned.back()->data());
    check(stream->copy_to_host(host, data, numbers * format.bytes), "copy_to_host");
    CHECK(drain());
    Numbers out;
    for (size_t i = 0; i < numbers; ++i) out.push_back(test::decode(format, host + i * format.bytes));
    return out;
  }
  // What the stream's finished work used.
  void forget() {
    buffers.clear();
    pinned.clear();
  }
  // Is the stream's work done, or has it failed, within the limit?
  bool drain(Nanos limit = kPatience) {
    std::unique_ptr<Event> event;
    if (!stream->record(event).ok()) return true;
    const Nanos deadline = deadline_after(limit);
    for (bool done = false; !done; std::this_thread::yield()) {
      if (!event->query(done).ok()) return true;
      if (!done && now() > deadline) return false;
    }
    return true;
  }

  std::unique_ptr<Ccl> library;
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<CclGroup> group;
  std::vector<std::unique_ptr<Allocation>> buffers, pinned;
};

// Runs body on each rank, on threads or by this process. Without a group: the body joins, or does not.
inline void run(const CclSetup &setup, int ranks, const std::function<void(Member &, int)> &body) {
  if (setup.processes) {
    const Processes &processes = setup.processes();
    if (processes.rank < ranks) {
      Member member(setup, processes.rank);
      body(member, processes.rank);
    }
    return processes.meet();
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      Member member(setup, rank);
      body(member, rank);
    });
  for (std::thread &thread : threads) thread.join();
}

inline CclId make_id(const CclSetup &setup) {
  std::unique_ptr<Ccl> library;
  REQUIRE(setup.open(library).ok());
  std::unique_ptr<Device> device;
  REQUIRE(setup.device(0, device).ok());
  CclId id;
  REQUIRE(device->with_current([&] { return library->make_id(id); }).ok());
  REQUIRE(device->close(kPatience).ok());
  if (setup.processes) setup.processes().share(id);
  return id;
}

// The same, in a group that is closed behind the body.
inline void run_group(const CclSetup &setup, int ranks, const std::function<void(Member &, int)> &body) {
  const CclId id = make_id(setup);
  run(setup, ranks, [&](Member &member, int rank) {
    const Status joined = member.library->join(id, rank, ranks, *member.device, kPatience, member.group);
    if (!member.check(joined, "join")) return;
    CHECK(member.group->rank() == rank);
    CHECK(member.group->size() == ranks);
    body(member, rank);
    member.check(member.group->async_error(), "async_error");
    member.check(member.group->close(kPatience), "close");
  });
}

inline CclCapabilities capabilities(const CclSetup &setup) {
  std::unique_ptr<Ccl> library;
  REQUIRE(setup.open(library).ok());
  return library->capabilities();
}

// What rank gives at element i: small and never zero, so that sums and products of three are exact in every
// format; for bool 0 and 1.
inline double given(dicomm_dtype dtype, int rank, size_t i) {
  if (dtype == DICOMM_BOOL) return static_cast<double>((i >> rank) & 1);
  if (format_of(dtype).bytes == 1) return 1 + static_cast<double>((i >> rank) & 1);
  return 1 + static_cast<double>((i + static_cast<size_t>(rank) * (i / 3 + 1)) % 3);
}
inline double factor_of(int rank) { return rank % 2 == 0 ? 2 : 1; }

inline double expected(dicomm_dtype dtype, dicomm_reduce op, int ranks, size_t i) {
  if (parts(dtype) == 2 && op == DICOMM_PROD) {
    std::complex<double> out = 1;
    for (int r = 0; r < ranks; ++r)
      out *= std::complex<double>(given(dtype, r, i & ~size_t{1}), given(dtype, r, i | 1));
    return i % 2 == 0 ? out.real() : out.imag();
  }
  double out = given(dtype, 0, i) * (op == DICOMM_PREMUL_SUM ? factor_of(0) : 1);
  for (int r = 1; r < ranks; ++r) {
    const double x = given(dtype, r, i);
    const auto a = static_cast<uint64_t>(out), b = static_cast<uint64_t>(x);
    switch (op) {
      case DICOMM_SUM:
      case DICOMM_AVG:
        out += x;
        break;
      case DICOMM_PREMUL_SUM:
        out += x * factor_of(r);
        break;
      case DICOMM_PROD:
        out *= x;
        break;
      case DICOMM_MIN:
        out = std::min(out, x);
        break;
      case DICOMM_MAX:
        out = std::max(out, x);
        break;
      case DICOMM_BAND:
        out = static_cast<double>(a & b);
        break;
      case DICOMM_BOR:
        out = static_cast<double>(a | b);
        break;
      case DICOMM_BXOR:
        out = static_cast<double>(a ^ b);
        break;
    }
  }
  if (op == DICOMM_AVG) out /= ranks;
  if (dtype == DICOMM_BOOL) return out != 0 ? 1 : 0;
  return format_of(dtype).kind == test::Format::floating ? out : std::trunc(out);
}

// Exact, but for avg and factors, which libraries apply before or after they add: then to one last place.
inline void check_numbers(const std::string &what, dicomm_dtype dtype, dicomm_reduce op, const Numbers &got,
                          const std::function<double(size_t)> &want) {
  const test::Format format = format_of(dtype);
  const bool exact = format.kind != test::Format::floating || (op != DICOMM_AVG && op != DICOMM_PREMUL_SUM);
  size_t wrong = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double there = want(i);
    const double allowed = exact ? 0 : std::ldexp(std::fabs(there), 1 - format.mantissa);
    if (std::fabs(got[i] - there) <= allowed) continue;
    if (wrong++ == 0) {
      INFO(what << " " << std::string(dtype_name(dtype)) << " " << std::string(reduce_name(op)) << ": number "
                << i << " is " << got[i] << ", not " << there);
      CHECK(got[i] == there);
    }
  }
  CHECK(wrong == 0);
}

inline Numbers numbers_of(dicomm_dtype dtype, int rank, size_t n) {
  Numbers out;
  for (size_t i = 0; i < n; ++i) out.push_back(given(dtype, rank, i));
  return out;
}

inline constexpr size_t kCounts[] = {0, 1, 7, 1025};

}  // namespace ccl
}  // namespace dicomm::suite
