// The run time of Ascend chips, AscendCL of CANN: its functions, opened at run time.
//
// Declared after the published acl_rt.h: handles are pointers, enumerations and aclError ints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "base/dynamic_library.h"
#include "base/error.h"

namespace dicomm {

// X(name, result and arguments)
#define DICOMM_ACL_FUNCTIONS(X)                                                                           \
  X(aclInit, int(const char *config))                                                                     \
  X(aclGetRecentErrMsg, const char *())                                                                   \
  X(aclrtGetVersion, int(int32_t *major, int32_t *minor, int32_t *patch))                                 \
  X(aclrtGetSocName, const char *())                                                                      \
  X(aclrtGetDeviceCount, int(uint32_t *count))                                                            \
  X(aclrtSetDevice, int(int32_t device))                                                                  \
  X(aclrtGetCurrentContext, int(void **context))                                                          \
  X(aclrtSetCurrentContext, int(void *context))                                                           \
  X(aclrtGetMemInfo, int(int kind, size_t *free, size_t *total))                                          \
  X(aclrtMalloc, int(void **data, size_t bytes, int policy))                                              \
  X(aclrtFree, int(void *data))                                                                           \
  X(aclrtMallocHost, int(void **data, size_t bytes))                                                      \
  X(aclrtFreeHost, int(void *data))                                                                       \
  X(aclrtPointerGetAttributes, int(const void *data, void *attributes))                                   \
  X(aclrtMemcpyAsync, int(void *dst, size_t room, const void *src, size_t bytes, int kind, void *stream)) \
  X(aclrtCreateStream, int(void **stream))                                                                \
  X(aclrtDestroyStream, int(void *stream))                                                                \
  X(aclrtSynchronizeStreamWithTimeout, int(void *stream, int32_t milliseconds))                           \
  X(aclrtStreamWaitEvent, int(void *stream, void *event))                                                 \
  X(aclrtCreateEventExWithFlag, int(void **event, uint32_t flags))                                        \
  X(aclrtDestroyEvent, int(void *event))                                                                  \
  X(aclrtRecordEvent, int(void *event, void *stream))                                                     \
  X(aclrtQueryEventStatus, int(void *event, int *status))                                                 \
  X(aclrtQueryEventWaitStatus, int(void *event, int *status))                                             \
  X(aclrtSubscribeReport, int(uint64_t thread, void *stream))                                             \
  X(aclrtUnSubscribeReport, int(uint64_t thread, void *stream))                                           \
  X(aclrtLaunchCallback, int(void (*fn)(void *arg), void *arg, int block, void *stream))                  \
  X(aclrtProcessReport, int(int32_t milliseconds))

enum AclValue : int {
  kAclSuccess = 0,
  kAclInvalidParam = 100000,
  kAclRepeatInitialize = 100002,
  kAclBadAlloc = 200000,
  kAclApiNotSupport = 200001,
  kAclRtParamInvalid = 107000,
  kAclRtInvalidDevice = 107001,
  kAclRtFeatureNotSupport = 207000,
  kAclRtMemoryAllocation = 207001,
  kAclRtStreamSyncTimeout = 507046,
  kAclHostToDevice = 1,
  kAclDeviceToHost = 2,
  kAclDeviceToDevice = 3,
  kAclMallocHugeFirst = 0,
  kAclHbmMemory = 1,
  kAclCallbackBlock = 1,      // what follows on the stream waits for it
  kAclEventComplete = 1,      // of QueryEventStatus
  kAclEventWaitComplete = 0,  // of QueryEventWaitStatus
  kAclEventSync = 1,          // can be waited for by streams
  kAclEventProgress = 2,      // can be queried
  kAclMemoryDevice = 1,
};

// What aclrtPointerGetAttributes fills begins like this.
struct AclPointerAttributes {
  uint32_t device;
  int type;
  uint32_t more[16];
};

class AclRuntime {
 public:
  static Status open(const std::vector<std::string> &files, std::shared_ptr<const AclRuntime> &out);

  // OK, or what the code means, with the code kept.
  Status check(int code, const char *what) const;
  std::string describe() const;

#define DICOMM_ACL_POINTER(name, ...) std::add_pointer_t<__VA_ARGS__> name = nullptr;
  DICOMM_ACL_FUNCTIONS(DICOMM_ACL_POINTER)
#undef DICOMM_ACL_POINTER

 private:
  AclRuntime() = default;
  template <class Function>
  Status find(const std::string &symbol, Function *&out) const;

  DynamicLibrary library_;
};

// Where libascendcl.so is looked for.
std::vector<std::string> acl_files();

}  // namespace dicomm
