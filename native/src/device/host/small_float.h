// 8- and 16-bit floats and their conversions to and from float32: exact one way, round to nearest even the
// other. Written without branches so that loops over them vectorise.
//
// Everything is in an anonymous namespace: see element_types.h.
#pragma once

#include <cstdint>

namespace dicomm {
namespace {

inline float float_of(int32_t bits) { return __builtin_bit_cast(float, bits); }
inline int32_t bits_of(float value) { return __builtin_bit_cast(int32_t, value); }

// decode(word, shift) reads the small float that stands `shift` bits above the lowest of `word`, whatever its
// other bits are; encode(value, shift) is a word with the small float there and zeros elsewhere. It makes
// every NaN the same one.

// IEEE-like formats with `kExponent` exponent and `kMantissa` mantissa bits. kInfinity: is there one? Else
// what is above the largest finite value becomes that value, infinity too, as torch 2.13 has it.
template <class Bits, int kExponent, int kMantissa, bool kInfinity, int32_t kNan>
struct SmallFloat {
  using Storage = Bits;
  static constexpr int kBits = 8 * sizeof(Storage);
  static constexpr int kBias = (1 << (kExponent - 1)) - 1;
  static constexpr int kShift = 23 - kMantissa;
  static constexpr int32_t kMagnitude = (1 << (kBits - 1)) - 1;
  static constexpr int32_t kExponentMask = ((1 << kExponent) - 1) << kMantissa;
  static constexpr int32_t kMaxFinite = kInfinity ? kExponentMask - 1 : kNan - 1;

  Storage bits;

  // Signed integers below: they compare faster in vectors, and no value reaches the sign bit.
  static float decode(uint32_t word, int shift) {
    const uint32_t sign = word << (32 - kBits - shift) & 0x80000000u;
    const int32_t magnitude = static_cast<int32_t>(word >> shift) & kMagnitude;
    // Rebias the exponent; subnormals are magnitude * 2^(1 - bias - mantissa), a float32 product that is
    // exact.
    const int32_t normal = (magnitude << kShift) + ((127 - kBias) << 23);
    constexpr int32_t kUnit = (127 + 1 - kBias - kMantissa) << 23;
    const int32_t subnormal = bits_of(static_cast<float>(magnitude) * float_of(kUnit));
    int32_t value = magnitude > (1 << kMantissa) - 1 ? normal : subnormal;
    // Masks instead of choices, which g++ would entangle: infinities and NaNs; then a signalling NaN becomes
    // quiet, as it does with instructions that convert float16.
    value |= -int32_t{magnitude > kMaxFinite} & (kInfinity ? 0x7f800000 : 0x7fc00000);
    if constexpr (kBits == 16) value |= -int32_t{magnitude > kExponentMask} & 0x400000;
    return float_of(static_cast<int32_t>(sign | static_cast<uint32_t>(value)));
  }

  static uint32_t encode(float value, int shift) {
    const uint32_t word = static_cast<uint32_t>(bits_of(value));
    const int32_t magnitude = static_cast<int32_t>(word & 0x7fffffff);
    // Normal results: rebias, add half of the last kept bit (less one when that bit is even), cut.
    const int32_t even = (magnitude >> kShift) & 1;
    const int32_t normal = (magnitude - ((127 - kBias) << 23) + (1 << (kShift - 1)) - 1 + even) >> kShift;
    // Subnormal results: adding a number whose last bit weighs as much as theirs lets the FPU round.
    constexpr int32_t kMagic = (127 + 1 - kBias - kMantissa + 23) << 23;
    const int32_t subnormal = bits_of(float_of(magnitude) + float_of(kMagic)) - kMagic;
    int32_t result = magnitude > ((127 - kBias + 1) << 23) - 1 ? normal : subnormal;
    constexpr int32_t kOverflow = kInfinity ? kExponentMask : kMaxFinite;
    result = result > kMaxFinite ? kOverflow : result;
    const uint32_t sign = (word & 0x80000000u) >> (32 - kBits - shift);
    return value == value ? sign | static_cast<uint32_t>(result) << shift : uint32_t{kNan} << shift;
  }
};

using Half = SmallFloat<uint16_t, 5, 10, true, 0x7e00>;
using Float8E5M2 = SmallFloat<uint8_t, 5, 2, true, 0x7f>;
using Float8E4M3 = SmallFloat<uint8_t, 4, 3, false, 0x7f>;

// The upper half of a float32.
struct BFloat16 {
  using Storage = uint16_t;
  static constexpr int kBits = 16;

  uint16_t bits;

  static float decode(uint32_t word, int shift) {
    return float_of(static_cast<int32_t>(word << (16 - shift) & 0xffff0000u));
  }
  static uint32_t encode(float value, int shift) {
    const uint32_t word = static_cast<uint32_t>(bits_of(value));
    const uint32_t rounded = word + 0x7fff + ((word >> 16) & 1);
    return ((value == value ? rounded : 0x7fc00000u) & 0xffff0000u) >> (16 - shift);
  }
};

}  // namespace
}  // namespace dicomm
