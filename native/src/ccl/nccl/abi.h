// What the libraries of the NCCL family have in common, as their published headers declare it: values of the
// enumerations, types and functions. Where a member differs, its row in members.cc says so.
//
// tests/abi/test_nccl.py holds this file against the header and the library that NVIDIA publishes.
#pragma once

#include <cstddef>

namespace dicomm::nccl {

// X(our name, the vendor's name behind its prefix, value)
#define DICOMM_NCCL_RESULTS(X)                             \
  X(success, Success, 0)                                   \
  X(device_error, UnhandledCudaError, 1) /* by any name */ \
  X(system_error, SystemError, 2)                          \
  X(internal_error, InternalError, 3)                      \
  X(invalid_argument, InvalidArgument, 4)                  \
  X(invalid_usage, InvalidUsage, 5)                        \
  X(remote_error, RemoteError, 6)                          \
  X(in_progress, InProgress, 7)                            \
  X(timeout, Timeout, 8)

#define DICOMM_NCCL_DTYPES(X)    \
  X(int8, Int8, 0)               \
  X(uint8, Uint8, 1)             \
  X(int32, Int32, 2)             \
  X(uint32, Uint32, 3)           \
  X(int64, Int64, 4)             \
  X(uint64, Uint64, 5)           \
  X(float16, Float16, 6)         \
  X(float32, Float32, 7)         \
  X(float64, Float64, 8)         \
  X(bfloat16, Bfloat16, 9)       \
  X(float8_e4m3, Float8e4m3, 10) \
  X(float8_e5m2, Float8e5m2, 11)

#define DICOMM_NCCL_OPS(X) \
  X(sum, Sum, 0)           \
  X(prod, Prod, 1)         \
  X(max, Max, 2)           \
  X(min, Min, 3)           \
  X(avg, Avg, 4)

#define DICOMM_NCCL_ENUM(name, foreign, value) name = value,
enum Result : int { DICOMM_NCCL_RESULTS(DICOMM_NCCL_ENUM) };
namespace dtypes {
enum : int { DICOMM_NCCL_DTYPES(DICOMM_NCCL_ENUM) };
}
namespace ops {
enum : int { DICOMM_NCCL_OPS(DICOMM_NCCL_ENUM) };
}

struct Opaque;
using Comm = Opaque *;
using VendorStream = void *;

struct UniqueId {
  char internal[128];
};

// The first fields of ncclConfig_t, which has grown with every version: a library fills what a caller's size
// and version do not cover with its defaults.
struct Config {
  size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
};
inline constexpr unsigned kConfigMagic = 0xcafebeef;
inline constexpr int kScalarInHostMemory = 1;

// The versions, coded as the libraries do, from which on they have what is not in all of them.
inline constexpr int kBfloat16From = 21000;
inline constexpr int kAvgFrom = 21000;
inline constexpr int kPremulSumFrom = 21100;
inline constexpr int kNonBlockingFrom = 21400;
inline constexpr int kFloat8From = 22400;

// X(name behind the prefix, must it be there?, returned type, argument types...)
#define DICOMM_NCCL_FUNCTIONS(X)                                                          \
  X(GetVersion, true, int, int *)                                                         \
  X(GetUniqueId, true, int, UniqueId *)                                                   \
  X(GetErrorString, true, const char *, int)                                              \
  X(GetLastError, false, const char *, Comm)                                              \
  X(CommInitRank, true, int, Comm *, int, UniqueId, int)                                  \
  X(CommInitRankConfig, false, int, Comm *, int, UniqueId, int, Config *)                 \
  X(CommFinalize, false, int, Comm)                                                       \
  X(CommDestroy, true, int, Comm)                                                         \
  X(CommAbort, false, int, Comm)                                                          \
  X(CommGetAsyncError, false, int, Comm, int *)                                           \
  X(RedOpCreatePreMulSum, false, int, int *, void *, int, int, Comm)                      \
  X(RedOpDestroy, false, int, int, Comm)                                                  \
  X(Broadcast, true, int, const void *, void *, size_t, int, int, Comm, VendorStream)     \
  X(AllReduce, true, int, const void *, void *, size_t, int, int, Comm, VendorStream)     \
  X(Reduce, true, int, const void *, void *, size_t, int, int, int, Comm, VendorStream)   \
  X(AllGather, true, int, const void *, void *, size_t, int, Comm, VendorStream)          \
  X(ReduceScatter, true, int, const void *, void *, size_t, int, int, Comm, VendorStream) \
  X(Send, false, int, const void *, size_t, int, int, Comm, VendorStream)                 \
  X(Recv, false, int, void *, size_t, int, int, Comm, VendorStream)                       \
  X(GroupStart, true, int)                                                                \
  X(GroupEnd, true, int)

// Null where an optional one is missing.
struct Functions {
#define DICOMM_NCCL_POINTER(name, always, returned, ...) returned (*name)(__VA_ARGS__) = nullptr;
  DICOMM_NCCL_FUNCTIONS(DICOMM_NCCL_POINTER)
#undef DICOMM_NCCL_POINTER
};

}  // namespace dicomm::nccl
