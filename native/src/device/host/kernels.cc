#include "device/host/kernels.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "device/host/element_types.h"
#include "device/host/kernel_table.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace dicomm {

namespace {

// To an integer type: toward zero, NaN to 0, what is out of range to the nearest limit.
template <class A>
A convert(double value) {
  if constexpr (std::is_integral_v<A>) {
    if (std::isnan(value)) return 0;
    if (value <= static_cast<double>(std::numeric_limits<A>::min())) return std::numeric_limits<A>::min();
    if (value >= static_cast<double>(std::numeric_limits<A>::max())) return std::numeric_limits<A>::max();
  }
  if constexpr (is_complex<A>) {
    return {static_cast<typename A::Part>(value), 0};
  } else {
    return static_cast<A>(value);
  }
}

bool is_small(dicomm_dtype dtype) {
  return dtype == DICOMM_FLOAT8_E4M3FN || dtype == DICOMM_FLOAT8_E5M2 || dtype == DICOMM_FLOAT16 ||
         dtype == DICOMM_BFLOAT16;
}

#if defined(__x86_64__)
bool has_f16c() {  // compilers before g++ 11 and clang 18 cannot be asked for this one by name
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

}  // namespace

std::vector<const Kernels *> runnable_kernels() {
  std::vector<const Kernels *> found = {&kPortableKernels};
#if defined(__x86_64__)  // the builtin asks the system, too, whether it saves the wider registers
  const bool avx2 = __builtin_cpu_supports("avx2") && has_f16c();
  if (avx2) found.push_back(&kAvx2Kernels);
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    found.push_back(&kAvx512Kernels);
  }
#elif defined(__aarch64__)
  found.push_back(&kNeonKernels);
#endif
  return found;
}

const Kernels &chosen_kernels() {
  static const Kernels &chosen = *runnable_kernels().back();
  return chosen;
}

dicomm_dtype accumulation_type(dicomm_dtype dtype) { return is_small(dtype) ? DICOMM_FLOAT32 : dtype; }

bool reduction_supported(dicomm_dtype dtype, dicomm_reduce op) {
  const bool boolean = dtype == DICOMM_BOOL;
  const bool complex = dtype == DICOMM_COMPLEX64 || dtype == DICOMM_COMPLEX128;
  const bool integer = dtype <= DICOMM_INT64;
  switch (op) {
    case DICOMM_SUM:
    case DICOMM_PROD:
      return true;
    case DICOMM_MIN:
    case DICOMM_MAX:
      return !complex;
    case DICOMM_AVG:
    case DICOMM_PREMUL_SUM:
      return !boolean;
    case DICOMM_BAND:
    case DICOMM_BOR:
    case DICOMM_BXOR:
      return integer || boolean;
  }
  return false;
}

void copy_elements(const Arithmetic &arithmetic, void *dst, Form dst_form, const void *a, Form a_form,
                   uint64_t count, bool finish) {
  chosen_kernels().copy(arithmetic, dst, dst_form, a, a_form, count, finish);
}

void reduce_elements(const Arithmetic &arithmetic, void *dst, Form dst_form, const void *a, Form a_form,
                     const void *b, Form b_form, uint64_t count, bool finish) {
  chosen_kernels().reduce(arithmetic, dst, dst_form, a, a_form, b, b_form, count, finish);
}

void set_factor(Arithmetic &arithmetic, double value) {
  with_type(accumulation_type(arithmetic.dtype), [&](auto type) {
    using A = Accumulator<typename decltype(type)::type>;
    const A factor = convert<A>(value);
    std::memcpy(arithmetic.factor, &factor, sizeof factor);
  });
}

void set_factor(Arithmetic &arithmetic, const void *element) {
  with_type(arithmetic.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    T value;
    std::memcpy(&value, element, sizeof value);
    const Accumulator<T> factor = widen(value);
    std::memcpy(arithmetic.factor, &factor, sizeof factor);
  });
}

}  // namespace dicomm
