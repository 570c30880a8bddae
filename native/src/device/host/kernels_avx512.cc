// What the compiler makes of the loops, and nothing else: AVX512_BF16 converts float32 to bfloat16 in one
// instruction, but takes subnormal numbers for zero, so that its bits would not be those of other processors.
#if defined(__x86_64__)

#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512DQ__) || !defined(__AVX512VL__) || \
    !defined(__F16C__)
#error "this file is compiled with -mavx512f -mavx512bw -mavx512dq -mavx512vl -mf16c"
#endif

#include "device/host/element_loops.h"
#include "device/host/kernel_table.h"

namespace dicomm {

const Kernels kAvx512Kernels = {"avx512", copy_by_type, reduce_by_type};

}  // namespace dicomm

#endif
