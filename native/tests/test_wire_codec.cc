// Encodings of float32 for slow links: error bounds, error feedback, values that are not finite.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "device/host/wire_codec.h"

using namespace dicomm;

namespace {

struct Encoding {
  dicomm_dtype dtype;
  double error;   // relative
  bool of_block;  // to the largest of a block of 256, else to the element
};

const Encoding kEncodings[] = {{DICOMM_BFLOAT16, std::pow(2.0, -8), false},
                               {DICOMM_FLOAT16, std::pow(2.0, -11), false},
                               {DICOMM_FLOAT8_E4M3FN, std::pow(2.0, -4), true},
                               {DICOMM_FLOAT8_E5M2, std::pow(2.0, -3), true}};

// There and back.
std::vector<float> carried(dicomm_dtype dtype, const std::vector<float> &values,
                           std::vector<float> &residual) {
  std::vector<std::byte> encoded(encoded_bytes(dtype, values.size()) + 1, std::byte{0x5a});
  encode_elements(dtype, encoded.data(), values.data(), residual.data(), values.size());
  CHECK(encoded.back() == std::byte{0x5a});
  std::vector<float> out(values.size());
  decode_elements(dtype, out.data(), encoded.data(), values.size());
  return out;
}

std::vector<float> carried(dicomm_dtype dtype, const std::vector<float> &values) {
  std::vector<float> residual(values.size());
  return carried(dtype, values, residual);
}

}  // namespace

TEST_CASE("what may be an encoding") {
  for (int dtype = DICOMM_UINT8; dtype <= DICOMM_COMPLEX128; ++dtype) {
    bool listed = false;
    for (const Encoding &encoding : kEncodings) listed = listed || encoding.dtype == dtype;
    CHECK(can_encode(static_cast<dicomm_dtype>(dtype)) == listed);
  }
  CHECK(encoded_bytes(DICOMM_FLOAT16, 1000) == 2000);
  CHECK(encoded_bytes(DICOMM_FLOAT8_E5M2, 0) == 0);
  CHECK(encoded_bytes(DICOMM_FLOAT8_E5M2, 1) == 5);
  CHECK(encoded_bytes(DICOMM_FLOAT8_E4M3FN, 257) == 257 + 8);
}

TEST_CASE("the error is within its bound") {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (const Encoding &encoding : kEncodings) {
    CAPTURE(encoding.dtype);
    for (const size_t count : {1, 2, 255, 256, 257, 5000}) {
      for (const float size : {1e-3f, 1.0f, 3e3f}) {
        std::vector<float> values(count);
        for (float &value : values) value = size * normal(random);
        values[0] = 0;
        const std::vector<float> got = carried(encoding.dtype, values);
        for (size_t i = 0; i < count; ++i) {
          double reference = std::fabs(values[i]);
          for (size_t j = i / 256 * 256; encoding.of_block && j < std::min(count, (i / 256 + 1) * 256); ++j) {
            reference = std::max(reference, std::fabs(double{values[j]}));
          }
          const double least = encoding.dtype == DICOMM_FLOAT16 ? std::pow(2.0, -25) : 0;  // subnormal
          CHECK(std::fabs(double{got[i]} - values[i]) <= std::max(encoding.error * reference, least));
        }
      }
    }
  }
}

// Sums of what arrives stay as near to the sums of what was sent as one message is.
TEST_CASE("what is lost is added the next time") {
  std::mt19937 random(8);
  std::uniform_real_distribution<float> uniform(0.5f, 1.5f);
  for (const Encoding &encoding : kEncodings) {
    CAPTURE(encoding.dtype);
    std::vector<float> values(300), residual(300);
    for (float &value : values) value = uniform(random);
    std::vector<double> sum(300);
    constexpr int kRounds = 200;
    for (int round = 0; round < kRounds; ++round) {
      const std::vector<float> got = carried(encoding.dtype, values, residual);
      for (size_t i = 0; i < values.size(); ++i) sum[i] += got[i];
    }
    for (size_t i = 0; i < values.size(); ++i) {
      CHECK(std::fabs(sum[i] - kRounds * double{values[i]}) <= 2 * encoding.error * 1.5 + 1e-4);
    }
  }
}

TEST_CASE("what is not finite arrives so, and is not kept") {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  for (const Encoding &encoding : kEncodings) {
    CAPTURE(encoding.dtype);
    std::vector<float> values(300, 1.0f), residual(300);
    values[3] = infinity;
    values[5] = -infinity;
    values[7] = nan;
    const std::vector<float> got = carried(encoding.dtype, values, residual);
    CHECK(std::isnan(got[7]));
    CHECK(!std::isfinite(got[3]));
    CHECK(!std::isfinite(got[5]));
    CHECK(got[299] == 1.0f);  // another block
    if (!encoding.of_block) {
      CHECK(got[3] == infinity);
      CHECK(got[5] == -infinity);
      CHECK(got[4] == 1.0f);
    }
    for (const float lost : residual) CHECK(std::isfinite(lost));
  }
}
