// Compiled by test_nccl.py against the header that NVIDIA publishes, never run: our declarations of the NCCL
// family are the vendor's.
#include <nccl.h>

#include <cstddef>
#include <type_traits>

#include "ccl/nccl/abi.h"

namespace ours = dicomm::nccl;

// Is an argument of type Ours handed over as one of type Theirs? Enumerations go as int; handles of streams
// and communicators are pointers to what nobody sees.
template <class Ours, class Theirs>
constexpr bool passes() {
  if constexpr (std::is_pointer_v<Theirs>) {
    using Pointed = std::remove_pointer_t<Theirs>;
    constexpr bool same_constness = std::is_const_v<Pointed> == std::is_const_v<std::remove_pointer_t<Ours>>;
    if constexpr (!std::is_pointer_v<Ours>)
      return false;
    else if constexpr (std::is_pointer_v<Pointed> || std::is_enum_v<Pointed>)
      return same_constness && passes<std::remove_pointer_t<Ours>, Pointed>();
    else
      return same_constness;
  } else if constexpr (std::is_enum_v<Theirs>) {
    return std::is_same_v<Ours, int> && sizeof(Theirs) == sizeof(int);
  } else if constexpr (std::is_class_v<Theirs>) {
    return std::is_class_v<Ours> && sizeof(Ours) == sizeof(Theirs) && std::is_trivially_copyable_v<Ours>;
  } else {
    return std::is_same_v<Ours, Theirs>;
  }
}

template <class Ours, class Theirs>
struct Same : std::false_type {};
template <class OurResult, class... Ours, class TheirResult, class... Theirs>
  requires(sizeof...(Ours) == sizeof...(Theirs))
struct Same<OurResult (*)(Ours...), TheirResult (*)(Theirs...)>
    : std::bool_constant<passes<OurResult, TheirResult>() && (passes<Ours, Theirs>() && ...)> {};

#define CHECK_FUNCTION(name, ...) \
  static_assert(Same<decltype(ours::Functions::name), decltype(&nccl##name)>::value, #name);
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
