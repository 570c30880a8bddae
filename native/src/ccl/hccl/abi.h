// Huawei's HCCL as its published header declares it: values of the enumerations, types and functions.
//
// tests/abi/test_hccl.py holds this file against that header.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dicomm::hccl {

// X(our name, the vendor's name behind HCCL_, value, the status it means)
#define DICOMM_HCCL_RESULTS(X)                                      \
  X(success, SUCCESS, 0, DICOMM_OK)                                 \
  X(bad_parameter, E_PARA, 1, DICOMM_INVALID_ARGUMENT)              \
  X(null_pointer, E_PTR, 2, DICOMM_INVALID_ARGUMENT)                \
  X(memory_error, E_MEMORY, 3, DICOMM_CCL_FAILED)                   \
  X(internal_error, E_INTERNAL, 4, DICOMM_CCL_FAILED)               \
  X(not_supported, E_NOT_SUPPORT, 5, DICOMM_NOT_SUPPORTED)          \
  X(not_found, E_NOT_FOUND, 6, DICOMM_CCL_FAILED)                   \
  X(unavailable, E_UNAVAIL, 7, DICOMM_CCL_FAILED)                   \
  X(system_call_failed, E_SYSCALL, 8, DICOMM_CCL_FAILED)            \
  X(timeout, E_TIMEOUT, 9, DICOMM_TIMED_OUT)                        \
  X(open_file_failed, E_OPEN_FILE_FAILURE, 10, DICOMM_CCL_FAILED)   \
  X(tcp_connect_failed, E_TCP_CONNECT, 11, DICOMM_CONNECT_FAILED)   \
  X(roce_connect_failed, E_ROCE_CONNECT, 12, DICOMM_CONNECT_FAILED) \
  X(tcp_transfer_failed, E_TCP_TRANSFER, 13, DICOMM_PEER_LOST)      \
  X(roce_transfer_failed, E_ROCE_TRANSFER, 14, DICOMM_PEER_LOST)    \
  X(run_time_failed, E_RUNTIME, 15, DICOMM_DEVICE_FAILED)           \
  X(driver_failed, E_DRV, 16, DICOMM_DEVICE_FAILED)                 \
  X(profiling_failed, E_PROFILING, 17, DICOMM_CCL_FAILED)           \
  X(cce_failed, E_CCE, 18, DICOMM_DEVICE_FAILED)                    \
  X(network_failed, E_NETWORK, 19, DICOMM_CCL_FAILED)               \
  X(again, E_AGAIN, 20, DICOMM_CCL_FAILED)                          \
  X(remote_error, E_REMOTE, 21, DICOMM_PEER_LOST)                   \
  X(suspending, E_SUSPENDING, 22, DICOMM_ABORTED)                   \
  X(retry_failed, E_OPRETRY_FAIL, 23, DICOMM_CCL_FAILED)            \
  X(out_of_memory, E_OOM, 24, DICOMM_NO_MEMORY)

// X(our name, the vendor's name behind HCCL_DATA_TYPE_, value, our dtype)
#define DICOMM_HCCL_DTYPES(X)          \
  X(int8, INT8, 0, DICOMM_INT8)        \
  X(int16, INT16, 1, DICOMM_INT16)     \
  X(int32, INT32, 2, DICOMM_INT32)     \
  X(float16, FP16, 3, DICOMM_FLOAT16)  \
  X(float32, FP32, 4, DICOMM_FLOAT32)  \
  X(int64, INT64, 5, DICOMM_INT64)     \
  X(uint64, UINT64, 6, DICOMM_UINT64)  \
  X(uint8, UINT8, 7, DICOMM_UINT8)     \
  X(uint16, UINT16, 8, DICOMM_UINT16)  \
  X(uint32, UINT32, 9, DICOMM_UINT32)  \
  X(float64, FP64, 10, DICOMM_FLOAT64) \
  X(bfloat16, BFP16, 11, DICOMM_BFLOAT16)

// X(our name, the vendor's name behind HCCL_REDUCE_, value)
#define DICOMM_HCCL_OPS(X) \
  X(sum, SUM, 0)           \
  X(prod, PROD, 1)         \
  X(max, MAX, 2)           \
  X(min, MIN, 3)

#define DICOMM_HCCL_ENUM(name, foreign, value, ...) name = value,
enum Result : int { DICOMM_HCCL_RESULTS(DICOMM_HCCL_ENUM) };
namespace dtypes {
enum : int { DICOMM_HCCL_DTYPES(DICOMM_HCCL_ENUM) };
}
namespace ops {
enum : int { DICOMM_HCCL_OPS(DICOMM_HCCL_ENUM) };
}
enum : int { kSend = 0, kReceive = 1 };

using Comm = void *;
using VendorStream = void *;

struct RootInfo {
  char internal[4108];
};

struct SendRecvItem {
  int kind;  // kSend or kReceive
  void *buf;
  uint64_t count;
  int dtype;
  uint32_t peer;
};

// X(name behind Hccl, must it be there?, returned type, argument types...)
#define DICOMM_HCCL_FUNCTIONS(X)                                                         \
  X(GetRootInfo, true, int, RootInfo *)                                                  \
  X(CommInitRootInfo, true, int, uint32_t, const RootInfo *, uint32_t, Comm *)           \
  X(CommDestroy, true, int, Comm)                                                        \
  X(GetCommAsyncError, false, int, Comm, int *)                                          \
  X(GetErrorString, false, const char *, int)                                            \
  X(Broadcast, true, int, void *, uint64_t, int, uint32_t, Comm, VendorStream)           \
  X(AllReduce, true, int, void *, void *, uint64_t, int, int, Comm, VendorStream)        \
  X(Reduce, true, int, void *, void *, uint64_t, int, int, uint32_t, Comm, VendorStream) \
  X(AllGather, true, int, void *, void *, uint64_t, int, Comm, VendorStream)             \
  X(ReduceScatter, true, int, void *, void *, uint64_t, int, int, Comm, VendorStream)    \
  X(Send, false, int, void *, uint64_t, int, uint32_t, Comm, VendorStream)               \
  X(Recv, false, int, void *, uint64_t, int, uint32_t, Comm, VendorStream)               \
  X(BatchSendRecv, false, int, SendRecvItem *, uint32_t, Comm, VendorStream)

// Null where an optional one is missing.
struct Functions {
#define DICOMM_HCCL_POINTER(name, always, returned, ...) returned (*name)(__VA_ARGS__) = nullptr;
  DICOMM_HCCL_FUNCTIONS(DICOMM_HCCL_POINTER)
#undef DICOMM_HCCL_POINTER
};

}  // namespace dicomm::hccl
