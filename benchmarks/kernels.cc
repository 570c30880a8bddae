// How fast copy and reduce steps are on one core, for every dtype, op and instruction set, beside an add
// written by hand: STREAM's kernel, out[i] = a[i] + b[i] on float32, compiled for this very processor.
//
//   cmake -S native -B build/kernels -DDICOMM_BENCHMARKS=ON && cmake --build build/kernels
//   build/kernels/dicomm_kernels_benchmark [KiB ...] [dtype ...]
//
// KiB: sizes of each of the three arrays, 64, 1024 and 65536 when none is given.
//
// All cases of one size run in turns, and the median of their rounds counts: what else the machine does hits
// all. A share is the case's bytes per second over those of the hand-written add.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/names.h"
#include "device/host/kernel_table.h"

namespace {

using namespace dicomm;

constexpr int kRounds = 15;

struct Case {
  std::string dtype, op, kernels;
  size_t element;
  std::function<void()> run;
  std::vector<double> seconds;
};

void add_by_hand(float *out, const float *a, const float *b, size_t n) {
#pragma GCC ivdep
  for (size_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

std::unique_ptr<unsigned char, decltype(&std::free)> page_aligned(size_t bytes) {
  auto *memory = static_cast<unsigned char *>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
  if (memory == nullptr) std::abort();
  std::memset(memory, 0, bytes);  // touched, and a small number in every dtype
  return {memory, &std::free};
}

// Of all dtypes when none is named.
std::vector<Case> cases(const std::vector<std::string> &dtypes, unsigned char *out, const unsigned char *a,
                        const unsigned char *b, size_t bytes) {
  std::vector<Case> found;
  found.push_back({"float32",
                   "add by hand",
                   "-",
                   4,
                   [=] {
                     add_by_hand(reinterpret_cast<float *>(out), reinterpret_cast<const float *>(a),
                                 reinterpret_cast<const float *>(b), bytes / sizeof(float));
                   },
                   {}});
  for (int dtype = 0; dtype <= DICOMM_COMPLEX128; ++dtype) {
    if (!dtypes.empty() && std::find(dtypes.begin(), dtypes.end(), dtype_name(dtype)) == dtypes.end())
      continue;
    for (int op = 0; op <= DICOMM_PREMUL_SUM; ++op) {
      Arithmetic arithmetic;
      arithmetic.dtype = static_cast<dicomm_dtype>(dtype);
      arithmetic.op = static_cast<dicomm_reduce>(op);
      arithmetic.size = 3;
      if (!reduction_supported(arithmetic.dtype, arithmetic.op)) continue;
      set_factor(arithmetic, 2);
      const size_t element = dicomm_dtype_size(dtype);
      for (const Kernels *kernels : runnable_kernels()) {
        found.push_back({dtype_name(dtype),
                         reduce_name(op),
                         kernels->name,
                         element,
                         [=] {
                           kernels->reduce(arithmetic, out, Form::plain, a, Form::raw, b, Form::raw,
                                           bytes / element, true);
                         },
                         {}});
      }
    }
  }
  return found;
}

double processor_seconds() {  // of this thread: what else the machine does takes none of it
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

void measure(Case &c, int repeats) {
  const double start = processor_seconds();
  for (int i = 0; i < repeats; ++i) c.run();
  c.seconds.push_back((processor_seconds() - start) / repeats);
}

void report(std::vector<Case> &all, size_t bytes) {
  std::printf("\n3 arrays of %zu KiB\n%-14s %-12s %-9s %10s %8s %6s\n", bytes / 1024, "dtype", "op",
              "kernels", "Gelem/s", "GB/s", "share");
  double limit = 0;
  for (Case &c : all) {
    std::nth_element(c.seconds.begin(), c.seconds.begin() + kRounds / 2, c.seconds.end());
    const double rate = 3 * static_cast<double>(bytes) / c.seconds[kRounds / 2] / 1e9;
    if (limit == 0) limit = rate;  // the first case
    std::printf("%-14s %-12s %-9s %10.2f %8.1f %5.0f%%\n", c.dtype.c_str(), c.op.c_str(), c.kernels.c_str(),
                rate / 3 / static_cast<double>(c.element), rate, 100 * rate / limit);
  }
}

}  // namespace

int main(int argc, char **argv) {
  std::vector<size_t> sizes;
  std::vector<std::string> dtypes;
  for (int i = 1; i < argc; ++i) {
    const size_t kib = std::strtoul(argv[i], nullptr, 10);
    if (kib > 0) {
      sizes.push_back(kib << 10);
    } else {
      dtypes.push_back(argv[i]);
    }
  }
  if (sizes.empty()) sizes = {size_t{64} << 10, size_t{1} << 20, size_t{64} << 20};
  for (const size_t bytes : sizes) {
    const auto a = page_aligned(bytes), b = page_aligned(bytes), out = page_aligned(bytes);
    std::vector<Case> all = cases(dtypes, out.get(), a.get(), b.get(), bytes);
    const int repeats = static_cast<int>(std::max<size_t>(1, (size_t{1} << 20) / bytes));
    for (int round = 0; round < kRounds; ++round) {
      for (Case &c : all) measure(c, repeats);
    }
    report(all, bytes);
  }
}
