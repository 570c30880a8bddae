#include "device/host/wire_codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "device/host/small_float.h"

namespace dicomm {

namespace {

constexpr uint64_t kBlock = 256;

template <class Small>
void encode_run(typename Small::Storage *out, const float *a, float *residual, uint64_t count, float scale) {
  for (uint64_t i = 0; i < count; ++i) {
    const float value = a[i] + residual[i];
    const uint32_t word = Small::encode(value / scale, 0);
    const float lost = value - Small::decode(word, 0) * scale;
    out[i] = static_cast<typename Small::Storage>(word);
    residual[i] = std::isfinite(lost) ? lost : 0;
  }
}

template <class Small>
void decode_run(float *dst, const typename Small::Storage *in, uint64_t count, float scale) {
  for (uint64_t i = 0; i < count; ++i) dst[i] = Small::decode(in[i], 0) * scale;
}

// One block: its scale, then its elements.
template <class Small>
void encode_block(std::byte *out, const float *a, float *residual, uint64_t count, float largest) {
  float most = 0;
  bool finite = true;
  for (uint64_t i = 0; i < count; ++i) {
    const float size = std::fabs(a[i] + residual[i]);
    finite = finite && std::isfinite(size);
    most = std::max(most, size);
  }
  // A power of two: dividing and multiplying by it lose nothing.
  float scale = finite ? std::exp2(std::ceil(std::log2(std::max(most / largest, 1e-37f))))
                       : std::numeric_limits<float>::quiet_NaN();
  std::memcpy(out, &scale, sizeof scale);
  encode_run<Small>(reinterpret_cast<typename Small::Storage *>(out + sizeof scale), a, residual, count,
                    finite ? scale : 1);
  if (!finite) std::fill_n(residual, count, 0.0f);
}

template <class Small>
void encode_blocks(void *out, const float *a, float *residual, uint64_t count, float largest) {
  auto *to = static_cast<std::byte *>(out);
  for (uint64_t at = 0; at < count; at += kBlock) {
    const uint64_t n = std::min(kBlock, count - at);
    encode_block<Small>(to, a + at, residual + at, n, largest);
    to += sizeof(float) + n;
  }
}

template <class Small>
void decode_blocks(float *dst, const void *encoded, uint64_t count) {
  const auto *from = static_cast<const std::byte *>(encoded);
  for (uint64_t at = 0; at < count; at += kBlock) {
    const uint64_t n = std::min(kBlock, count - at);
    float scale;
    std::memcpy(&scale, from, sizeof scale);
    decode_run<Small>(dst + at, reinterpret_cast<const typename Small::Storage *>(from + sizeof scale), n,
                      scale);
    from += sizeof(float) + n;
  }
}

}  // namespace

bool can_encode(dicomm_dtype wire) {
  return wire == DICOMM_BFLOAT16 || wire == DICOMM_FLOAT16 || wire == DICOMM_FLOAT8_E4M3FN ||
         wire == DICOMM_FLOAT8_E5M2;
}

uint64_t encoded_bytes(dicomm_dtype wire, uint64_t count) {
  if (dicomm_dtype_size(wire) == 2) return 2 * count;
  return count + sizeof(float) * ((count + kBlock - 1) / kBlock);
}

void encode_elements(dicomm_dtype wire, void *out, const float *a, float *residual, uint64_t count) {
  switch (wire) {
    case DICOMM_BFLOAT16:
      return encode_run<BFloat16>(static_cast<uint16_t *>(out), a, residual, count, 1);
    case DICOMM_FLOAT16:
      return encode_run<Half>(static_cast<uint16_t *>(out), a, residual, count, 1);
    case DICOMM_FLOAT8_E4M3FN:
      return encode_blocks<Float8E4M3>(out, a, residual, count, 448);
    default:
      return encode_blocks<Float8E5M2>(out, a, residual, count, 57344);
  }
}

void decode_elements(dicomm_dtype wire, float *dst, const void *encoded, uint64_t count) {
  switch (wire) {
    case DICOMM_BFLOAT16:
      return decode_run<BFloat16>(dst, static_cast<const uint16_t *>(encoded), count, 1);
    case DICOMM_FLOAT16:
      return decode_run<Half>(dst, static_cast<const uint16_t *>(encoded), count, 1);
    case DICOMM_FLOAT8_E4M3FN:
      return decode_blocks<Float8E4M3>(dst, encoded, count);
    default:
      return decode_blocks<Float8E5M2>(dst, encoded, count);
  }
}

}  // namespace dicomm
