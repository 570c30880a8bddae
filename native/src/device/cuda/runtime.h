// Run times with the interface of CUDA's: one table of functions, one row for each vendor.
//
// Handles are pointers and enumerations are ints in this interface, so the functions are declared with those;
// native/tests/test_cuda_header.cc holds them against CUDA's own header.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/dynamic_library.h"
#include "base/error.h"

namespace dicomm {

struct CudaMember {
  std::string vendor;
  std::string name;                // of the run time, and foreign_domain of its codes
  std::vector<std::string> files;  // tried in this order
  std::string how;                 // to get it
  std::string prefix;              // of its functions
  std::string host_alloc;          // allocates pinned memory
  std::string host_free;
  std::string driver;       // library below it, for what it lacks; "": none
  std::string device_name;  // function of the driver, else of the run time: (char *, int length, int device)
  int renumbered = 0;       // before this version of the run time memory types are numbered differently
};

// The member that serves the vendor; null when none does.
const CudaMember *find_cuda_member(std::string_view vendor);
std::vector<std::string> cuda_vendors();

// X(name, result and arguments)
#define DICOMM_CUDA_FUNCTIONS(X)                                                                   \
  X(GetDeviceCount, int(int *count))                                                               \
  X(GetDevice, int(int *device))                                                                   \
  X(SetDevice, int(int device))                                                                    \
  X(Malloc, int(void **data, size_t bytes))                                                        \
  X(Free, int(void *data))                                                                         \
  X(MemcpyAsync, int(void *dst, const void *src, size_t bytes, int kind, void *stream))            \
  X(StreamCreateWithFlags, int(void **stream, unsigned flags))                                     \
  X(StreamDestroy, int(void *stream))                                                              \
  X(StreamSynchronize, int(void *stream))                                                          \
  X(StreamQuery, int(void *stream))                                                                \
  X(StreamWaitEvent, int(void *stream, void *event, unsigned flags))                               \
  X(StreamAddCallback,                                                                             \
    int(void *stream, void (*fn)(void *stream, int status, void *arg), void *arg, unsigned flags)) \
  X(EventCreateWithFlags, int(void **event, unsigned flags))                                       \
  X(EventDestroy, int(void *event))                                                                \
  X(EventRecord, int(void *event, void *stream))                                                   \
  X(EventQuery, int(void *event))                                                                  \
  X(PointerGetAttributes, int(void *attributes, const void *data))                                 \
  X(MemGetInfo, int(size_t *free, size_t *total))                                                  \
  X(DeviceGetPCIBusId, int(char *text, int length, int device))                                    \
  X(RuntimeGetVersion, int(int *version))                                                          \
  X(GetLastError, int())                                                                           \
  X(GetErrorName, const char *(int code))                                                          \
  X(GetErrorString, const char *(int code))

// Values that are the same in the whole family.
enum CudaValue : int {
  kCudaSuccess = 0,
  kCudaInvalidValue = 1,
  kCudaMemoryAllocation = 2,
  kCudaInsufficientDriver = 35,
  kCudaNoDevice = 100,
  kCudaInvalidDevice = 101,
  kCudaNotReady = 600,
  kCudaNotSupported = 801,
  kCudaHostToDevice = 1,
  kCudaDeviceToHost = 2,
  kCudaDeviceToDevice = 3,
  kCudaStreamNonBlocking = 1,
  kCudaEventDisableTiming = 2,
  kCudaHostAllocPortable = 1,
  kCudaMemoryDevice = 2,   // as in CUDA; renumbered: 1
  kCudaMemoryManaged = 3,  // renumbered: 4
};

// What PointerGetAttributes fills begins like this.
struct CudaPointerAttributes {
  int type;
  int device;
  void *device_pointer;
  void *host_pointer;
  long more[16];  // at least as much as any member has
};

class CudaRuntime {
 public:
  static Status open(const CudaMember &member, std::shared_ptr<const CudaRuntime> &out);

  // OK, or what the code means, with the code kept. Forgets it, so that the trainer does not find it in its
  // own next GetLastError.
  Status check(int code, const char *what) const;
  // Is memory of this type on a chip?
  bool on_device(int memory_type) const;
  std::string describe() const;

  const CudaMember &member() const { return member_; }

#define DICOMM_CUDA_POINTER(name, ...) std::add_pointer_t<__VA_ARGS__> name = nullptr;
  DICOMM_CUDA_FUNCTIONS(DICOMM_CUDA_POINTER)
#undef DICOMM_CUDA_POINTER
  int (*HostAlloc)(void **data, size_t bytes, unsigned flags) = nullptr;
  int (*FreeHost)(void *data) = nullptr;
  // Of the driver; null where there is none.
  int (*DeviceGetName)(char *text, int length, int device) = nullptr;
  int (*DeviceGetAttribute)(int *value, int attribute, int device) = nullptr;
  int (*MemGetHandleForAddressRange)(void *handle, unsigned long long data, size_t bytes, int type,
                                     unsigned long long flags) = nullptr;
  int (*PointerGetAttribute)(void *value, int attribute, unsigned long long data) = nullptr;
  int (*FlushGPUDirectRDMAWrites)(int target, int scope) = nullptr;

 private:
  explicit CudaRuntime(const CudaMember &member) : member_(member) {}
  Status find_functions();
  template <class Function>
  Status find(const std::string &symbol, Function *&out) const;

  const CudaMember member_;
  DynamicLibrary library_;
  DynamicLibrary driver_;
  int version_ = 0;
};

}  // namespace dicomm
