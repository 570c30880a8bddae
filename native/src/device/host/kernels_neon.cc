// NEON is part of every arm64 processor, so the portable kernels use it, too; these add its conversions of
// float16.
#if defined(__aarch64__)

#define DICOMM_NEON
#include "device/host/element_loops.h"
#include "device/host/kernel_table.h"

namespace dicomm {

const Kernels kNeonKernels = {"neon", copy_by_type, reduce_by_type};

}  // namespace dicomm

#endif
