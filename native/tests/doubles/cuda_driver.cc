// What the CUDA device needs of the driver, for tests: a name, and a memfd for exported memory.
#include <sys/mman.h>

#include <cstdio>

#include "doubles/control.h"

#define EXPORT __attribute__((visibility("default")))

using dicomm::doubles::control;

extern "C" {
EXPORT int cuDeviceGetName(char *text, int length, int device) {
  std::snprintf(text, static_cast<size_t>(length), "double %d", device);
  return 0;
}
EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device) {
  if (const int programmed = control().called("cuDeviceGetAttribute", "%d of %d", attribute, device))
    return programmed;
  *value = 1;
  return 0;
}
EXPORT int cuMemGetHandleForAddressRange(void *handle, unsigned long long data, size_t bytes, int type,
                                         unsigned long long flags) {
  const int programmed = control().called(
      "cuMemGetHandleForAddressRange", "%llu bytes %zu type %d flags %llu", data % 4096, bytes, type, flags);
  if (programmed != 0) return programmed;
  *static_cast<int *>(handle) = memfd_create("double", MFD_CLOEXEC);
  return 0;
}
}
