// Every variant of the kernels that this processor runs gives the bits of the portable one. (That those are
// right is what test_kernels.cc checks, by way of the variant that was chosen.)
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "base/names.h"
#include "device/host/kernel_table.h"

using namespace dicomm;

namespace {

using Bytes = std::vector<unsigned char>;

constexpr Form kForms[] = {Form::raw, Form::plain, Form::wide};
constexpr std::ptrdiff_t kMargin = 64;  // bytes on both sides of a result that must stay as they are
constexpr unsigned char kFill = 0xab;

size_t size_in(const Arithmetic &arithmetic, Form form) {
  return dicomm_dtype_size(form == Form::wide ? accumulation_type(arithmetic.dtype) : arithmetic.dtype);
}

// Any bits: NaNs of all kinds, infinities, subnormals. Half of the floats are of moderate size, so that sums
// are not mostly one operand.
Bytes random_bytes(size_t count, const Arithmetic &arithmetic, Form form, std::mt19937_64 &random) {
  Bytes out(count * size_in(arithmetic, form));
  for (auto &byte : out) byte = static_cast<unsigned char>(random());
  if (arithmetic.dtype == DICOMM_BOOL && form != Form::raw) {  // written by us: 0 or 1
    for (auto &byte : out) byte &= 1;
  }
  const bool single = form == Form::wide ? accumulation_type(arithmetic.dtype) == DICOMM_FLOAT32
                                         : arithmetic.dtype == DICOMM_FLOAT32;
  for (size_t i = 0; single && i + 8 <= out.size(); i += 8) {
    const float value = static_cast<float>(static_cast<int32_t>(random())) / 65536;
    std::memcpy(&out[i], &value, sizeof value);
  }
  return out;
}

// Runs f(dst, a, b) with a and b copied to odd addresses (shift > 0) and returns dst with its margins.
template <class F>
Bytes result_of(F f, size_t dst_bytes, const Bytes &a, const Bytes &b, size_t shift) {
  Bytes shifted_a(a.size() + shift), shifted_b(b.size() + 2 * shift),
      dst(dst_bytes + 2 * kMargin + shift, kFill);
  std::copy(a.begin(), a.end(), shifted_a.begin() + static_cast<std::ptrdiff_t>(shift));
  std::copy(b.begin(), b.end(), shifted_b.begin() + static_cast<std::ptrdiff_t>(2 * shift));
  f(dst.data() + kMargin + shift, shifted_a.data() + shift, shifted_b.data() + 2 * shift);
  dst.erase(dst.begin(), dst.begin() + static_cast<std::ptrdiff_t>(shift));
  return dst;
}

bool untouched(Bytes::const_iterator margin) {
  return std::all_of(margin, margin + kMargin, [](unsigned char byte) { return byte == kFill; });
}

std::vector<const Kernels *> others() {
  std::vector<const Kernels *> found = runnable_kernels();
  found.erase(found.begin());
  return found;
}

std::vector<Arithmetic> all_arithmetic() {
  std::vector<Arithmetic> all;
  for (int dtype = 0; dtype <= DICOMM_COMPLEX128; ++dtype) {
    for (int op = 0; op <= DICOMM_PREMUL_SUM; ++op) {
      Arithmetic arithmetic;
      arithmetic.dtype = static_cast<dicomm_dtype>(dtype);
      arithmetic.op = static_cast<dicomm_reduce>(op);
      arithmetic.size = 7;
      if (!reduction_supported(arithmetic.dtype, arithmetic.op)) continue;
      set_factor(arithmetic, 3.3);
      all.push_back(arithmetic);
    }
  }
  return all;
}

std::string words(const Kernels &kernels, const Arithmetic &arithmetic, size_t count) {
  std::ostringstream text;
  text << kernels.name << " " << dtype_name(arithmetic.dtype) << " " << reduce_name(arithmetic.op) << " "
       << count << " elements";
  return text.str();
}

}  // namespace

TEST_CASE("the variants are what the system says of the processor") {
  std::vector<std::string> want = {"portable"}, got;
#if defined(__x86_64__)
  std::ifstream file("/proc/cpuinfo");
  std::string line, flags;
  while (flags.empty() && std::getline(file, line)) {
    if (line.starts_with("flags")) flags = line.substr(line.find(':') + 1) + " ";
  }
  const auto has = [&](const char *flag) { return flags.find(std::string(" ") + flag + " ") != flags.npos; };
  const bool avx2 = has("avx2") && has("f16c");
  if (avx2) want.push_back("avx2");
  if (avx2 && has("avx512f") && has("avx512bw") && has("avx512dq") && has("avx512vl"))
    want.push_back("avx512");
#elif defined(__aarch64__)
  want.push_back("neon");
#endif
  for (const Kernels *kernels : runnable_kernels()) got.push_back(kernels->name);
  CHECK(got == want);
  CHECK(chosen_kernels().name == want.back());
}

TEST_CASE("every variant reduces to the bits of the portable one") {
  std::mt19937_64 random(23);
  for (const Arithmetic &arithmetic : all_arithmetic()) {
    for (const size_t count : {1, 5, 63, 300, 777}) {
      for (const Form a_form : kForms) {
        for (const Form b_form : kForms) {
          const Bytes a = random_bytes(count, arithmetic, a_form, random);
          const Bytes b = random_bytes(count, arithmetic, b_form, random);
          for (const Form dst_form : kForms) {
            for (const bool finish : {false, true}) {
              const auto bits = [&](const Kernels &kernels, size_t shift) {
                const auto reduce = [&](void *dst, const void *x, const void *y) {
                  kernels.reduce(arithmetic, dst, dst_form, x, a_form, y, b_form, count, finish);
                };
                return result_of(reduce, count * size_in(arithmetic, dst_form), a, b, shift);
              };
              const Bytes want = bits(kPortableKernels, 0);
              REQUIRE(untouched(want.begin()));
              REQUIRE(untouched(want.end() - kMargin));
              REQUIRE_MESSAGE(bits(kPortableKernels, 1) == want, words(kPortableKernels, arithmetic, count));
              for (const Kernels *kernels : others()) {
                REQUIRE_MESSAGE(bits(*kernels, 0) == want, words(*kernels, arithmetic, count));
                REQUIRE_MESSAGE(bits(*kernels, 3) == want, words(*kernels, arithmetic, count));
              }
            }
          }
        }
      }
    }
  }
}

TEST_CASE("every variant copies to the bits of the portable one") {
  std::mt19937_64 random(29);
  for (const Arithmetic &arithmetic : all_arithmetic()) {
    for (const size_t count : {1, 9, 256, 515}) {
      for (const Form a_form : kForms) {
        const Bytes a = random_bytes(count, arithmetic, a_form, random);
        for (const Form dst_form : kForms) {
          for (const bool finish : {false, true}) {
            const auto bits = [&](const Kernels &kernels, size_t shift) {
              const auto copy = [&](void *dst, const void *x, const void *) {
                kernels.copy(arithmetic, dst, dst_form, x, a_form, count, finish);
              };
              return result_of(copy, count * size_in(arithmetic, dst_form), a, {}, shift);
            };
            const Bytes want = bits(kPortableKernels, 0);
            for (const Kernels *kernels : others()) {
              REQUIRE_MESSAGE(bits(*kernels, 0) == want, words(*kernels, arithmetic, count));
              REQUIRE_MESSAGE(bits(*kernels, 3) == want, words(*kernels, arithmetic, count));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("every variant rounds a million float32 patterns like the portable one") {
  std::vector<uint32_t> patterns;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 4093)
    patterns.push_back(static_cast<uint32_t>(bits));
  for (int dtype : {DICOMM_FLOAT8_E4M3FN, DICOMM_FLOAT8_E5M2, DICOMM_FLOAT16, DICOMM_BFLOAT16}) {
    Arithmetic arithmetic;
    arithmetic.dtype = static_cast<dicomm_dtype>(dtype);
    const auto rounded = [&](const Kernels &kernels) {
      Bytes out(patterns.size() * dicomm_dtype_size(dtype));
      kernels.copy(arithmetic, out.data(), Form::plain, patterns.data(), Form::wide, patterns.size(), true);
      return out;
    };
    const Bytes want = rounded(kPortableKernels);
    for (const Kernels *kernels : others()) {
      CHECK_MESSAGE(rounded(*kernels) == want, words(*kernels, arithmetic, patterns.size()));
    }
  }
}

TEST_CASE("every variant adds all pairs of small floats like the portable one") {
  for (int dtype : {DICOMM_FLOAT8_E4M3FN, DICOMM_FLOAT8_E5M2, DICOMM_FLOAT16, DICOMM_BFLOAT16}) {
    Arithmetic arithmetic;
    arithmetic.dtype = static_cast<dicomm_dtype>(dtype);
    const size_t size = dicomm_dtype_size(dtype);
    const uint32_t values = 1u << 16;  // of 16-bit types: every value with one other
    Bytes a(values * size), b(values * size);
    for (uint32_t i = 0; i < values; ++i) {
      const uint32_t other = size == 1 ? i >> 8 : i * 40503u;
      std::memcpy(&a[i * size], &i, size);
      std::memcpy(&b[i * size], &other, size);
    }
    const auto sum = [&](const Kernels &kernels) {
      Bytes out(values * size);
      kernels.reduce(arithmetic, out.data(), Form::plain, a.data(), Form::raw, b.data(), Form::raw, values,
                     true);
      return out;
    };
    const Bytes want = sum(kPortableKernels);
    for (const Kernels *kernels : others())
      CHECK_MESSAGE(sum(*kernels) == want, words(*kernels, arithmetic, 0));
  }
}
