// For any processor of the family that the library is compiled for.
#include "device/host/element_loops.h"
#include "device/host/kernel_table.h"

namespace dicomm {

const Kernels kPortableKernels = {"portable", copy_by_type, reduce_by_type};

}  // namespace dicomm
