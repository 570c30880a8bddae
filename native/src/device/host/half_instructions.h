// float16 <-> float32 by the processor's own instructions, several at a time, with the bits that Half::decode
// and Half::encode give. Where a unit is compiled for a processor without them, nothing.
#pragma once

#include <cstdint>

#if defined(__F16C__)
#include <immintrin.h>
#define DICOMM_HALF_INSTRUCTIONS 1
#elif defined(DICOMM_NEON)
#include <arm_neon.h>
#define DICOMM_HALF_INSTRUCTIONS 1
#else
#define DICOMM_HALF_INSTRUCTIONS 0
#endif

#if DICOMM_HALF_INSTRUCTIONS

namespace dicomm {
namespace {

// Vectors of float32 with C's operators. The instructions would keep some of a NaN's payload and its sign
// when they narrow.
#if defined(__F16C__)

using FloatLanes = __m256;

inline FloatLanes load_lanes(const void *x) { return _mm256_loadu_ps(static_cast<const float *>(x)); }
inline void store_lanes(void *out, FloatLanes x) { _mm256_storeu_ps(static_cast<float *>(out), x); }
inline FloatLanes widen_lanes(const void *x) {
  return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i *>(x)));
}
inline void narrow_lanes(void *out, FloatLanes x) {
  const FloatLanes settled = x == x ? x : _mm256_set1_ps(__builtin_nanf(""));
  _mm_storeu_si128(static_cast<__m128i *>(out), _mm256_cvtps_ph(settled, _MM_FROUND_TO_NEAREST_INT));
}

#else

using FloatLanes = float32x4_t;

inline FloatLanes load_lanes(const void *x) {
  return vreinterpretq_f32_u8(vld1q_u8(static_cast<const uint8_t *>(x)));
}
inline void store_lanes(void *out, FloatLanes x) {
  vst1q_u8(static_cast<uint8_t *>(out), vreinterpretq_u8_f32(x));
}
inline FloatLanes widen_lanes(const void *x) {
  return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(static_cast<const uint8_t *>(x))));
}
inline void narrow_lanes(void *out, FloatLanes x) {
  const FloatLanes settled = x == x ? x : vdupq_n_f32(__builtin_nanf(""));
  vst1_u8(static_cast<uint8_t *>(out), vreinterpret_u8_f16(vcvt_f16_f32(settled)));
}

#endif

constexpr uint64_t kLanes = sizeof(FloatLanes) / sizeof(float);

}  // namespace
}  // namespace dicomm

#endif
