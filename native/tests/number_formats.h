// Numbers of every format as doubles, for tests: exact both ways for the small numbers that tests use.
// Written from the formats' definitions, apart from the library's own conversions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace dicomm::test {

struct Format {
  enum Kind { unsigned_integer, signed_integer, floating } kind = unsigned_integer;
  int bytes = 1;
  int mantissa = 0;  // floating: its explicit bits; the exponent has the rest but for the sign
  double exponent_bias() const { return std::ldexp(1.0, 8 * bytes - 2 - mantissa) - 1; }
};

inline constexpr Format kUint8{Format::unsigned_integer, 1}, kUint16{Format::unsigned_integer, 2},
    kUint32{Format::unsigned_integer, 4}, kUint64{Format::unsigned_integer, 8},
    kInt8{Format::signed_integer, 1}, kInt16{Format::signed_integer, 2}, kInt32{Format::signed_integer, 4},
    kInt64{Format::signed_integer, 8}, kFloat64{Format::floating, 8, 52}, kFloat32{Format::floating, 4, 23},
    kFloat16{Format::floating, 2, 10}, kBfloat16{Format::floating, 2, 7}, kE4m3{Format::floating, 1, 3},
    kE5m2{Format::floating, 1, 2};

inline double decode(const Format &format, const void *from) {
  uint64_t bits = 0;
  std::memcpy(&bits, from, format.bytes);
  const int width = 8 * format.bytes;
  if (format.kind == Format::unsigned_integer) return static_cast<double>(bits);
  if (format.kind == Format::signed_integer)
    return static_cast<double>(static_cast<int64_t>(bits << (64 - width)) >> (64 - width));
  const uint64_t fraction = bits & ((uint64_t{1} << format.mantissa) - 1);
  const auto exponent =
      static_cast<int>((bits & ~(uint64_t{1} << (width - 1))) >> format.mantissa);  // no NaN, no infinity
  const auto bias = static_cast<int>(format.exponent_bias());
  const double magnitude = exponent == 0
                               ? std::ldexp(static_cast<double>(fraction), 1 - bias - format.mantissa)
                               : std::ldexp(static_cast<double>(fraction | (uint64_t{1} << format.mantissa)),
                                            exponent - bias - format.mantissa);
  return (bits >> (width - 1)) != 0 ? -magnitude : magnitude;
}

// Integers drop the fraction, floats round to nearest even. Nothing overflows here.
inline void encode(const Format &format, double value, void *to) {
  uint64_t bits = 0;
  if (format.kind == Format::unsigned_integer) bits = static_cast<uint64_t>(value);
  if (format.kind == Format::signed_integer) bits = static_cast<uint64_t>(static_cast<int64_t>(value));
  if (format.kind == Format::floating && value != 0) {
    const auto bias = static_cast<int>(format.exponent_bias());
    int exponent = std::max(std::ilogb(value), 1 - bias);
    auto whole =
        static_cast<uint64_t>(std::nearbyint(std::ldexp(std::fabs(value), format.mantissa - exponent)));
    if (whole >> (format.mantissa + 1) != 0) {
      whole >>= 1;
      ++exponent;
    }
    const uint64_t hidden = uint64_t{1} << format.mantissa;
    bits = whole < hidden ? whole
                          : (static_cast<uint64_t>(exponent + bias) << format.mantissa) | (whole - hidden);
    if (value < 0) bits |= uint64_t{1} << (8 * format.bytes - 1);
  }
  std::memcpy(to, &bits, format.bytes);
}

}  // namespace dicomm::test
