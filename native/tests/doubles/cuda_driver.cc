// What the CUDA device needs of the driver, for tests: a name, a memfd for exported memory, and numbers of
// allocations, which are the addresses' pages of 16 MiB.
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
  *value = attribute == 118 ? 0 : 1;  // writes of others are not ordered with the chip's own work
  return 0;
}
EXPORT int cuPointerGetAttribute(void *value, int attribute, unsigned long long data) {
  if (const int programmed = control().called("cuPointerGetAttribute", "%d", attribute)) return programmed;
  *static_cast<unsigned long long *>(value) = data >> 24;
  return 0;
}
EXPORT int cuFlushGPUDirectRDMAWrites(int target, int scope) {
  return control().called("cuFlushGPUDirectRDMAWrites", "%d, %d", target, scope);
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
