// 8- and 16-bit floats and their conversions to and from float32: exact one way, round to nearest even the
// other. Written without branches so that loops over them vectorise.
#pragma once

#include <bit>
#include <cstdint>

namespace dicomm {

// IEEE-like formats with `kExponent` exponent and `kMantissa` mantissa bits.
// kInfinity: is there one? Else what is above the largest finite value becomes that value, infinity too, as
// torch 2.13 has it. Signs are kept.
template <class Storage, int kExponent, int kMantissa, bool kInfinity, int32_t kNan>
struct SmallFloat {
  static constexpr int kBits = 8 * sizeof(Storage);
  static constexpr int kBias = (1 << (kExponent - 1)) - 1;
  static constexpr int kShift = 23 - kMantissa;
  static constexpr int32_t kMagnitude = (1 << (kBits - 1)) - 1;
  static constexpr int32_t kExponentMask = ((1 << kExponent) - 1) << kMantissa;
  static constexpr int32_t kMaxFinite = kInfinity ? kExponentMask - 1 : kNan - 1;

  Storage bits;

  // Signed integers below: they compare faster in vectors, and no value reaches the sign bit.
  float to_float() const {
    const uint32_t sign = uint32_t{bits} >> (kBits - 1) << 31;
    const int32_t magnitude = bits & kMagnitude;
    // Rebias the exponent; subnormals are magnitude * 2^(1 - bias - mantissa), a float32 product that is
    // exact.
    const int32_t normal = (magnitude << kShift) + ((127 - kBias) << 23);
    constexpr float kUnit = std::bit_cast<float>((127 + 1 - kBias - kMantissa) << 23);
    const int32_t subnormal = std::bit_cast<int32_t>(static_cast<float>(magnitude) * kUnit);
    int32_t value = magnitude < (1 << kMantissa) ? subnormal : normal;
    if constexpr (kInfinity) {
      value = magnitude >= kExponentMask ? 0x7f800000 | (magnitude << kShift) : value;
    } else {
      value = magnitude > kMaxFinite ? 0x7fc00000 : value;
    }
    return std::bit_cast<float>(sign | static_cast<uint32_t>(value));
  }

  static SmallFloat from_float(float value) {
    const uint32_t word = std::bit_cast<uint32_t>(value);
    const int32_t magnitude = static_cast<int32_t>(word & 0x7fffffff);
    // Normal results: rebias, add half of the last kept bit (less one when that bit is even), cut.
    const int32_t even = (magnitude >> kShift) & 1;
    const int32_t normal = (magnitude - ((127 - kBias) << 23) + (1 << (kShift - 1)) - 1 + even) >> kShift;
    // Subnormal results: adding a number whose last bit weighs as much as theirs lets the FPU round.
    constexpr int32_t kMagic = (127 + 1 - kBias - kMantissa + 23) << 23;
    const float sum = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kMagic);
    const int32_t subnormal = std::bit_cast<int32_t>(sum) - kMagic;
    int32_t result = magnitude < (127 - kBias + 1) << 23 ? subnormal : normal;
    constexpr int32_t kOverflow = kInfinity ? kExponentMask : kMaxFinite;
    result = result > kMaxFinite ? kOverflow : result;
    result = magnitude > 0x7f800000 ? kNan : result;
    const uint32_t sign = word >> 31 << (kBits - 1);
    return {static_cast<Storage>(sign | static_cast<uint32_t>(result))};
  }
};

using Half = SmallFloat<uint16_t, 5, 10, true, 0x7e00>;
using Float8E5M2 = SmallFloat<uint8_t, 5, 2, true, 0x7f>;
using Float8E4M3 = SmallFloat<uint8_t, 4, 3, false, 0x7f>;

// The upper half of a float32.
struct BFloat16 {
  uint16_t bits;

  float to_float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
  static BFloat16 from_float(float value) {
    const uint32_t word = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (word + 0x7fff + ((word >> 16) & 1)) >> 16;
    return {static_cast<uint16_t>((word & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded)};
  }
};

}  // namespace dicomm
