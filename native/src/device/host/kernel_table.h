// The kernels compiled once for each instruction set. All of them give the same bits: they differ in speed.
#pragma once

#include <vector>

#include "device/host/kernels.h"

namespace dicomm {

struct Kernels {
  const char *name;
  decltype(&copy_elements) copy;
  decltype(&reduce_elements) reduce;
};

// Each stands in its own kernels_NAME.cc, which is empty where the processor family is another.
extern const Kernels kPortableKernels;
extern const Kernels kAvx2Kernels;    // x86-64: AVX2 and F16C
extern const Kernels kAvx512Kernels;  // x86-64: AVX-512 F, BW, DQ and VL, and F16C
extern const Kernels kNeonKernels;    // arm64

// What this processor can run, from slow to fast; the portable ones come first.
std::vector<const Kernels *> runnable_kernels();
// The last of them, chosen once: what copy_elements and reduce_elements use.
const Kernels &chosen_kernels();

}  // namespace dicomm
