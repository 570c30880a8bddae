// Arithmetic on host memory: what copy and reduce steps do. Pure functions of their arguments.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dicomm/dicomm.h"

namespace dicomm {

// float32 for 8- and 16-bit floats, else dtype.
dicomm_dtype accumulation_type(dicomm_dtype dtype);
// Does torch define this op on this dtype? (bitwise on floats and complex, min/max on complex, avg and
// premul_sum on bool: no.)
bool reduction_supported(dicomm_dtype dtype, dicomm_reduce op);

// What turns an operation's elements into accumulators and back.
struct Arithmetic {
  dicomm_dtype dtype = DICOMM_UINT8;
  dicomm_reduce op = DICOMM_SUM;
  int size = 1;                               // divisor of avg
  alignas(16) unsigned char factor[16] = {};  // premul_sum: one element of accumulation_type(dtype)
};

// How elements lie in the spaces of coll/schedule.h.
enum class Form : uint8_t {
  raw,    // input, stage: dtype; read with premul applied and bool made logical, written as plain
  plain,  // output: dtype
  wide,   // acc: the accumulation type
};

// dst[i] = finish(a[i]) or a[i], converted between forms. dst may equal a when the element sizes agree (where
// nothing changes, nothing is written). Plain to plain without finish is a memory copy.
void copy_elements(const Arithmetic &arithmetic, void *dst, Form dst_form, const void *a, Form a_form,
                   uint64_t count, bool finish);
// dst[i] = a[i] op b[i], in the accumulation type; then as copy_elements. dst may equal a or b when sizes
// agree.
void reduce_elements(const Arithmetic &arithmetic, void *dst, Form dst_form, const void *a, Form a_form,
                     const void *b, Form b_form, uint64_t count, bool finish);
// factor <- value, converted (from a double, or from one element of dtype).
void set_factor(Arithmetic &arithmetic, double value);
void set_factor(Arithmetic &arithmetic, const void *element);

}  // namespace dicomm
