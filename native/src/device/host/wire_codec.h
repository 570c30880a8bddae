// float32 in fewer bytes, for what crosses slow links. Pure functions of their arguments.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dicomm/dicomm.h"

namespace dicomm {

// bfloat16, float16, float8_e4m3fn and float8_e5m2.
bool can_encode(dicomm_dtype wire);
// Encoded bytes of `count` elements. 8-bit floats come in blocks of 256 with a float32 scale each, so that
// the largest of a block becomes the largest number of the type.
uint64_t encoded_bytes(dicomm_dtype wire, uint64_t count);
// out = a + residual, rounded to nearest even; residual = what that lost (0 where something is not finite).
// Relative to a finite element the error is at most 2^-8 for bfloat16 and 2^-11 for float16 within its range;
// relative to the largest of its block 2^-4 for e4m3 and 2^-3 for e5m2. An infinity or NaN arrives as one in
// bfloat16 and float16; with 8 bits its whole block arrives as NaN.
void encode_elements(dicomm_dtype wire, void *out, const float *a, float *residual, uint64_t count);
void decode_elements(dicomm_dtype wire, float *dst, const void *encoded, uint64_t count);

}  // namespace dicomm
