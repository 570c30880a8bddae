// Compiled by test_nccl.py against the header that NVIDIA publishes, never run: our declarations of the NCCL
// family are the vendor's.
#include <nccl.h>

#include <cstddef>

#include "ccl/nccl/abi.h"
#include "same_abi.h"

namespace ours = dicomm::nccl;

#define CHECK_FUNCTION(name, ...) \
  static_assert(same_abi::Same<decltype(ours::Functions::name), decltype(&nccl##name)>::value, #name);
DICOMM_NCCL_FUNCTIONS(CHECK_FUNCTION)

#define CHECK_RESULT(name, theirs, value) static_assert(int{ours::name} == int{nccl##theirs});
#define CHECK_DTYPE(name, theirs, value) static_assert(int{ours::dtypes::name} == int{nccl##theirs});
#define CHECK_OP(name, theirs, value) static_assert(int{ours::ops::name} == int{nccl##theirs});
DICOMM_NCCL_RESULTS(CHECK_RESULT)
DICOMM_NCCL_DTYPES(CHECK_DTYPE)
DICOMM_NCCL_OPS(CHECK_OP)

static_assert(ours::kConfigMagic == NCCL_API_MAGIC);
static_assert(ours::kScalarInHostMemory == int{ncclScalarHostImmediate});
static_assert(offsetof(ours::Config, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(ours::Config, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(ours::Config, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(sizeof(ours::Config) <= sizeof(ncclConfig_t));
static_assert(ours::kNonBlockingFrom == NCCL_VERSION(2, 14, 0));
