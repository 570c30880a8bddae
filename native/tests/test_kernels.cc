// Arithmetic against an independent computation in double (or, for integers, in 128 bits), over all dtypes,
// ops and forms.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/names.h"
#include "device/host/kernels.h"

using namespace dicomm;

namespace {

constexpr uint64_t kCounts[] = {0, 1, 7, 255, 256, 257, 1000};

bool is_float(int dtype) { return dtype >= DICOMM_FLOAT8_E4M3FN && dtype <= DICOMM_FLOAT64; }
bool is_integer(int dtype) { return dtype <= DICOMM_INT64; }
bool is_signed(int dtype) { return is_integer(dtype) && dtype % 2 == 1; }
size_t size_of(int dtype) {
  switch (dtype) {
#define DICOMM_SIZE(name, value, size) \
  case value:                          \
    return size;
    DICOMM_DTYPE_LIST(DICOMM_SIZE)
#undef DICOMM_SIZE
    default:
      return 0;
  }
}

struct Format {
  int exponent, mantissa;
  bool infinity;
};
Format format(int dtype) {
  switch (dtype) {
    case DICOMM_FLOAT8_E4M3FN:
      return {4, 3, false};
    case DICOMM_FLOAT8_E5M2:
      return {5, 2, true};
    case DICOMM_FLOAT16:
      return {5, 10, true};
    default:
      return {8, 7, true};
  }
}

// The textbook value of a small float, from its definition.
double decode(int dtype, uint32_t bits) {
  const Format f = format(dtype);
  const int width = 1 + f.exponent + f.mantissa;
  const double sign = (bits >> (width - 1)) != 0 ? -1 : 1;
  const int e = static_cast<int>(bits >> f.mantissa) & ((1 << f.exponent) - 1);
  const int m = static_cast<int>(bits) & ((1 << f.mantissa) - 1);
  const int bias = (1 << (f.exponent - 1)) - 1;
  const bool top = e == (1 << f.exponent) - 1;
  if (top && f.infinity) return m == 0 ? sign * INFINITY : NAN;
  if (top && m == (1 << f.mantissa) - 1) return NAN;
  if (e == 0) return sign * std::ldexp(m, 1 - bias - f.mantissa);
  return sign * std::ldexp(m + (1 << f.mantissa), e - bias - f.mantissa);
}

// x rounded to nearest even in a small format; above the largest value plus half a step: infinity, or the
// largest value.
double round_to(int dtype, double x) {
  if (std::isnan(x) || x == 0) return x;
  const Format f = format(dtype);
  const int bias = (1 << (f.exponent - 1)) - 1;
  const double largest =
      decode(dtype, ((1u << (f.exponent + f.mantissa)) - 1) - (f.infinity ? (1u << f.mantissa) : 1u));
  if (std::isinf(x)) return f.infinity ? x : std::copysign(largest, x);
  const int e = std::max(std::ilogb(x), 1 - bias);
  const double step = std::ldexp(1, e - f.mantissa);
  const double rounded = std::nearbyint(x / step) * step;  // exact but for the rounding
  if (std::abs(rounded) > largest) return std::copysign(f.infinity ? INFINITY : largest, x);
  return rounded;
}

uint32_t load_bits(const unsigned char *p, size_t size) {
  uint32_t bits = 0;
  std::memcpy(&bits, p, size);
  return bits;
}

double load_float(int dtype, const unsigned char *p) {
  if (dtype == DICOMM_FLOAT64) {
    double x;
    std::memcpy(&x, p, sizeof x);
    return x;
  }
  if (dtype == DICOMM_FLOAT32) return std::bit_cast<float>(load_bits(p, 4));
  return decode(dtype, load_bits(p, size_of(dtype)));
}

using Wide = __int128;
Wide load_integer(int dtype, const unsigned char *p) {
  uint64_t bits = 0;
  const size_t size = size_of(dtype);
  std::memcpy(&bits, p, size);
  if (!is_signed(dtype)) return bits;
  const int shift = 64 - 8 * static_cast<int>(size);
  return static_cast<int64_t>(bits << shift) >> shift;
}

// Into the range of dtype, modulo 2^bits.
Wide wrap_integer(int dtype, Wide x) {
  unsigned char bytes[16];
  std::memcpy(bytes, &x, 16);
  return load_integer(dtype, bytes);
}

double to_float32(double x) { return static_cast<double>(static_cast<float>(x)); }

std::vector<unsigned char> random_elements(int dtype, uint64_t count, std::mt19937_64 &random) {
  std::vector<unsigned char> out(count * size_of(dtype));
  for (auto &byte : out) byte = static_cast<unsigned char>(random());
  // Real numbers of moderate size where random bits would mostly overflow.
  std::normal_distribution<double> normal(0, 4);
  for (uint64_t i = 0; i < count; ++i) {
    unsigned char *p = out.data() + i * size_of(dtype);
    if (dtype == DICOMM_FLOAT32 || dtype == DICOMM_COMPLEX64) {
      for (size_t k = 0; k < size_of(dtype) / 4; ++k) {
        const float x = static_cast<float>(normal(random));
        std::memcpy(p + 4 * k, &x, 4);
      }
    } else if (dtype == DICOMM_FLOAT64 || dtype == DICOMM_COMPLEX128) {
      for (size_t k = 0; k < size_of(dtype) / 8; ++k) {
        const double x = normal(random);
        std::memcpy(p + 8 * k, &x, 8);
      }
    }
  }
  if (dtype == DICOMM_BOOL) {
    for (auto &byte : out) byte = byte % 3;  // 2 is true, too
  }
  return out;
}

// a op b of float dtypes; widened ones compute in float32.
double expect_float(int dtype, int op, double a, double b, double factor, int size, bool premul_a,
                    bool premul_b) {
  const bool widened = dtype < DICOMM_FLOAT32;
  const auto acc = [&](double x) { return dtype == DICOMM_FLOAT64 ? x : to_float32(x); };
  if (op == DICOMM_PREMUL_SUM) {
    if (premul_a) a = acc(a * factor);
    if (premul_b) b = acc(b * factor);
  }
  double x = 0;
  switch (op) {
    case DICOMM_PROD:
      x = acc(a * b);
      break;
    case DICOMM_MIN:
      x = std::isnan(a) || std::isnan(b) ? NAN : std::fmin(a, b);
      break;
    case DICOMM_MAX:
      x = std::isnan(a) || std::isnan(b) ? NAN : std::fmax(a, b);
      break;
    default:
      x = acc(a + b);
      break;
  }
  if (op == DICOMM_AVG) x = acc(x / size);
  return widened ? round_to(dtype, x) : x;
}

Wide expect_integer(int dtype, int op, Wide a, Wide b, Wide factor, int size) {
  switch (op) {
    case DICOMM_SUM:
      return wrap_integer(dtype, a + b);
    case DICOMM_PROD: {
      using Unsigned = unsigned __int128;
      return wrap_integer(dtype, static_cast<Wide>(static_cast<Unsigned>(a) * static_cast<Unsigned>(b)));
    }
    case DICOMM_MIN:
      return std::min(a, b);
    case DICOMM_MAX:
      return std::max(a, b);
    case DICOMM_AVG:
      return wrap_integer(dtype, a + b) / size;  // C++ division truncates toward zero
    case DICOMM_BAND:
      return wrap_integer(dtype, a & b);
    case DICOMM_BOR:
      return wrap_integer(dtype, a | b);
    case DICOMM_BXOR:
      return wrap_integer(dtype, a ^ b);
    default:
      return wrap_integer(dtype, wrap_integer(dtype, a * factor) + wrap_integer(dtype, b * factor));
  }
}

bool expect_bool(int op, bool a, bool b) {
  switch (op) {
    case DICOMM_PROD:
    case DICOMM_MIN:
    case DICOMM_BAND:
      return a && b;
    case DICOMM_BXOR:
      return a != b;
    default:
      return a || b;
  }
}

bool same(double x, double y) {
  return std::isnan(x) ? std::isnan(y) : x == y && std::signbit(x) == std::signbit(y);
}

std::string where(int dtype, int op, uint64_t i) {
  return std::string(dtype_name(dtype)) + " " + reduce_name(op) + " element " + std::to_string(i);
}

}  // namespace

TEST_CASE("small floats convert as their definition says") {
  for (int dtype : {DICOMM_FLOAT8_E4M3FN, DICOMM_FLOAT8_E5M2, DICOMM_FLOAT16, DICOMM_BFLOAT16}) {
    const size_t size = size_of(dtype);
    Arithmetic arithmetic;
    arithmetic.dtype = static_cast<dicomm_dtype>(dtype);
    const uint32_t values = 1u << (8 * size);
    std::vector<unsigned char> small(values * size);
    std::vector<float> wide(values);
    for (uint32_t i = 0; i < values; ++i) std::memcpy(&small[i * size], &i, size);
    copy_elements(arithmetic, wide.data(), Form::wide, small.data(), Form::raw, values, false);
    for (uint32_t i = 0; i < values; ++i)
      REQUIRE_MESSAGE(same(wide[i], decode(dtype, i)), where(dtype, 0, i));

    // Back, with numbers between neighbours: halfway, just below and just above.
    std::vector<float> probes = {0.0f,
                                 -0.0f,
                                 INFINITY,
                                 -INFINITY,
                                 NAN,
                                 std::numeric_limits<float>::max(),
                                 std::numeric_limits<float>::denorm_min(),
                                 448.0f,
                                 464.0f,
                                 465.0f,
                                 480.0f,
                                 65504.0f,
                                 65519.99f,
                                 65520.0f,
                                 57344.0f,
                                 61440.0f,
                                 3.4e38f,
                                 3.39e38f};
    for (uint32_t i = 0; i + 1 < values; ++i) {
      const float x = wide[i];
      const float next = wide[i + 1];
      probes.push_back(x);
      if (!std::isfinite(x) || !std::isfinite(next)) continue;
      const float middle = static_cast<float>((static_cast<double>(x) + static_cast<double>(next)) / 2);
      for (float p : {middle, std::nextafter(middle, x), std::nextafter(middle, next)}) probes.push_back(p);
    }
    std::vector<unsigned char> back(probes.size() * size);
    copy_elements(arithmetic, back.data(), Form::plain, probes.data(), Form::wide, probes.size(), true);
    for (size_t i = 0; i < probes.size(); ++i) {
      const double got = decode(dtype, load_bits(&back[i * size], size));
      REQUIRE_MESSAGE(same(got, round_to(dtype, probes[i])), where(dtype, 0, i) << " " << probes[i]);
    }
  }
}

TEST_CASE("every supported op on every real dtype") {
  std::mt19937_64 random(11);
  for (int dtype = 0; dtype <= DICOMM_FLOAT64; ++dtype) {
    for (int op = 0; op <= DICOMM_PREMUL_SUM; ++op) {
      if (!reduction_supported(static_cast<dicomm_dtype>(dtype), static_cast<dicomm_reduce>(op))) continue;
      Arithmetic arithmetic;
      arithmetic.dtype = static_cast<dicomm_dtype>(dtype);
      arithmetic.op = static_cast<dicomm_reduce>(op);
      arithmetic.size = 3;
      const double factor = is_float(dtype) ? 0.5 : 3;
      set_factor(arithmetic, factor);
      const size_t size = size_of(dtype);
      for (uint64_t count : kCounts) {
        const auto a = random_elements(dtype, count, random);
        const auto b = random_elements(dtype, count, random);
        std::vector<unsigned char> out(a.size());
        reduce_elements(arithmetic, out.data(), Form::plain, a.data(), Form::raw, b.data(), Form::raw, count,
                        true);
        for (uint64_t i = 0; i < count; ++i) {
          const unsigned char *x = &a[i * size], *y = &b[i * size], *z = &out[i * size];
          if (dtype == DICOMM_BOOL) {
            REQUIRE_MESSAGE(*z == (expect_bool(op, *x != 0, *y != 0) ? 1 : 0), where(dtype, op, i));
          } else if (is_integer(dtype)) {
            const Wide want = expect_integer(dtype, op, load_integer(dtype, x), load_integer(dtype, y), 3, 3);
            REQUIRE_MESSAGE((load_integer(dtype, z) == want), where(dtype, op, i));
          } else {
            const double want =
                expect_float(dtype, op, load_float(dtype, x), load_float(dtype, y), factor, 3, true, true);
            REQUIRE_MESSAGE(same(load_float(dtype, z), want), where(dtype, op, i));
          }
        }
        // In place and at odd addresses: the same bits.
        std::vector<unsigned char> shifted(a.size() + 1), left = a, right = b;
        if (!a.empty()) std::memcpy(shifted.data() + 1, a.data(), a.size());
        reduce_elements(arithmetic, left.data(), Form::plain, left.data(), Form::raw, b.data(), Form::raw,
                        count, true);
        reduce_elements(arithmetic, right.data(), Form::plain, a.data(), Form::raw, right.data(), Form::raw,
                        count, true);
        reduce_elements(arithmetic, shifted.data() + 1, Form::plain, shifted.data() + 1, Form::raw, b.data(),
                        Form::raw, count, true);
        CHECK(left == out);
        CHECK(right == out);
        CHECK((out.empty() || std::memcmp(shifted.data() + 1, out.data(), out.size()) == 0));
      }
    }
  }
}

TEST_CASE("complex sum, product, average and premul_sum") {
  std::mt19937_64 random(5);
  using C = std::complex<double>;
  for (int dtype : {DICOMM_COMPLEX64, DICOMM_COMPLEX128}) {
    const bool single = dtype == DICOMM_COMPLEX64;
    const auto load = [&](const std::vector<unsigned char> &v, uint64_t i) {
      const int part = single ? DICOMM_FLOAT32 : DICOMM_FLOAT64;
      const size_t size = size_of(part);
      return C(load_float(part, &v[2 * i * size]), load_float(part, &v[(2 * i + 1) * size]));
    };
    const std::complex<float> factor32(0.5f, -2.0f);
    const C factor(0.5, -2.0);
    for (int op : {DICOMM_SUM, DICOMM_PROD, DICOMM_AVG, DICOMM_PREMUL_SUM}) {
      Arithmetic arithmetic;
      arithmetic.dtype = static_cast<dicomm_dtype>(dtype);
      arithmetic.op = static_cast<dicomm_reduce>(op);
      arithmetic.size = 4;
      set_factor(arithmetic, single ? static_cast<const void *>(&factor32) : &factor);
      const auto a = random_elements(dtype, 300, random);
      const auto b = random_elements(dtype, 300, random);
      std::vector<unsigned char> out(a.size());
      reduce_elements(arithmetic, out.data(), Form::plain, a.data(), Form::raw, b.data(), Form::raw, 300,
                      true);
      for (uint64_t i = 0; i < 300; ++i) {
        const C x = load(a, i), y = load(b, i);
        const C want = op == DICOMM_PROD  ? x * y
                       : op == DICOMM_SUM ? x + y
                       : op == DICOMM_AVG ? (x + y) / 4.0
                                          : x * factor + y * factor;
        const double tolerance = (single ? 1e-5 : 1e-13) * (1 + std::abs(x) * std::abs(y));
        REQUIRE_MESSAGE(std::abs(load(out, i) - want) <= tolerance, where(dtype, op, i));
      }
    }
  }
}

TEST_CASE("partial results in float32 are rounded once, at the end") {
  for (int dtype : {DICOMM_FLOAT8_E4M3FN, DICOMM_FLOAT8_E5M2, DICOMM_FLOAT16, DICOMM_BFLOAT16}) {
    std::mt19937_64 random(3);
    Arithmetic arithmetic;
    arithmetic.dtype = static_cast<dicomm_dtype>(dtype);
    arithmetic.op = DICOMM_AVG;
    arithmetic.size = 5;
    const uint64_t count = 600;
    std::vector<float> acc(count);
    std::vector<double> want(count);
    std::vector<unsigned char> out(count * size_of(dtype));
    for (int rank = 0; rank < 5; ++rank) {
      std::vector<unsigned char> x = random_elements(dtype, count, random);
      for (size_t i = 0; i < x.size(); i += 2) x[i] &= 0xbf;  // fewer huge numbers
      for (uint64_t i = 0; i < count; ++i) {
        const double value = load_float(dtype, &x[i * size_of(dtype)]);
        want[i] = rank == 0 ? value : to_float32(want[i] + value);
      }
      if (rank == 0) {
        copy_elements(arithmetic, acc.data(), Form::wide, x.data(), Form::raw, count, false);
      } else if (rank < 4) {
        reduce_elements(arithmetic, acc.data(), Form::wide, acc.data(), Form::wide, x.data(), Form::raw,
                        count, false);
      } else {
        reduce_elements(arithmetic, out.data(), Form::plain, acc.data(), Form::wide, x.data(), Form::raw,
                        count, true);
      }
    }
    for (uint64_t i = 0; i < count; ++i) {
      const double expected = round_to(dtype, to_float32(want[i] / 5));
      REQUIRE_MESSAGE(same(load_float(dtype, &out[i * size_of(dtype)]), expected),
                      where(dtype, DICOMM_AVG, i));
    }
  }
}

TEST_CASE("premul_sum multiplies what is raw and nothing else") {
  Arithmetic arithmetic;
  arithmetic.dtype = DICOMM_FLOAT32;
  arithmetic.op = DICOMM_PREMUL_SUM;
  set_factor(arithmetic, 3.0);
  const float raw = 2, partial = 5;
  float out = 0;
  reduce_elements(arithmetic, &out, Form::plain, &partial, Form::wide, &raw, Form::raw, 1, true);
  CHECK(out == 11);
  copy_elements(arithmetic, &out, Form::plain, &raw, Form::raw, 1, true);
  CHECK(out == 6);
  copy_elements(arithmetic, &out, Form::plain, &partial, Form::wide, 1, true);
  CHECK(out == 5);
}

// Ranks that compute the same expression must get the same bits, whatever lies where.
TEST_CASE("every NaN result has the same bits, wherever operands and result lie") {
  for (uint64_t count : {1, 3, 64, 1001}) {
    for (dicomm_reduce op : {DICOMM_SUM, DICOMM_PROD, DICOMM_MIN, DICOMM_MAX}) {
      Arithmetic arithmetic;
      arithmetic.dtype = DICOMM_FLOAT32;
      arithmetic.op = op;
      std::vector<float> a(count, std::bit_cast<float>(0xffc00001u));
      const std::vector<float> b(count, std::bit_cast<float>(0x7fc00002u));
      if (op == DICOMM_SUM) a[count / 2] = 1;
      std::vector<float> apart(count), left = a, right = b;
      std::vector<float> odd(count + 1);
      const auto reduce = [&](float *dst, const float *x, const float *y) {
        reduce_elements(arithmetic, dst, Form::wide, x, Form::raw, y, Form::wide, count, false);
      };
      reduce(apart.data(), a.data(), b.data());
      reduce(left.data(), left.data(), b.data());
      reduce(right.data(), a.data(), right.data());
      reduce(odd.data() + 1, a.data(), b.data());
      for (uint64_t i = 0; i < count; ++i) {
        for (float x : {apart[i], left[i], right[i], odd[i + 1]}) {
          REQUIRE_MESSAGE(std::bit_cast<uint32_t>(x) == 0x7fc00000u, where(DICOMM_FLOAT32, op, i));
        }
      }
    }
  }
  Arithmetic sum;
  sum.dtype = DICOMM_FLOAT64;
  const double up = INFINITY, down = -INFINITY;
  double out = 0;
  reduce_elements(sum, &out, Form::plain, &up, Form::raw, &down, Form::raw, 1, true);
  CHECK(std::bit_cast<uint64_t>(out) == 0x7ff8000000000000u);
}

TEST_CASE("which reductions exist") {
  CHECK(reduction_supported(DICOMM_BOOL, DICOMM_SUM));
  CHECK(reduction_supported(DICOMM_INT8, DICOMM_BXOR));
  CHECK(reduction_supported(DICOMM_COMPLEX64, DICOMM_AVG));
  CHECK_FALSE(reduction_supported(DICOMM_BOOL, DICOMM_AVG));
  CHECK_FALSE(reduction_supported(DICOMM_BOOL, DICOMM_PREMUL_SUM));
  CHECK_FALSE(reduction_supported(DICOMM_COMPLEX128, DICOMM_MAX));
  CHECK_FALSE(reduction_supported(DICOMM_FLOAT32, DICOMM_BAND));
  CHECK_FALSE(reduction_supported(DICOMM_FLOAT8_E5M2, DICOMM_BOR));
  CHECK_FALSE(reduction_supported(DICOMM_COMPLEX64, DICOMM_BXOR));
}

TEST_CASE("a factor out of an integer's range is taken to the nearest limit") {
  Arithmetic arithmetic;
  arithmetic.dtype = DICOMM_UINT8;
  arithmetic.op = DICOMM_PREMUL_SUM;
  const uint8_t one = 1;
  uint8_t out = 0;
  for (const auto &[factor, want] : {std::pair{-3.0, 0}, {1e30, 255}, {2.9, 2}, {std::nan(""), 0}}) {
    set_factor(arithmetic, factor);
    copy_elements(arithmetic, &out, Form::plain, &one, Form::raw, 1, true);
    CHECK(out == want);
  }
}
