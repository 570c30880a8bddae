#if defined(__x86_64__)

#if !defined(__AVX2__) || !defined(__F16C__)
#error "this file is compiled with -mavx2 -mf16c"
#endif

#include "device/host/element_loops.h"
#include "device/host/kernel_table.h"

namespace dicomm {

const Kernels kAvx2Kernels = {"avx2", copy_by_type, reduce_by_type};

}  // namespace dicomm

#endif
