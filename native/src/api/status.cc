#include "api/guard.h"

namespace dicomm {

namespace {
thread_local Status last;  // errno's kind of state: one per thread, read by the same thread only
}

void remember(const Status &status) { last = status; }

}  // namespace dicomm

namespace {

struct Entry {
  int32_t value;
  const char *name, *group, *text;
};
#define DICOMM_STATUS_ENTRY(name, value, group, text) {value, #name, group, text},
constexpr Entry kStatuses[] = {DICOMM_STATUS_LIST(DICOMM_STATUS_ENTRY)};

const Entry *find(int32_t status) {
  for (const Entry &entry : kStatuses) {
    if (entry.value == status) return &entry;
  }
  return nullptr;
}

}  // namespace

extern "C" {

uint32_t dicomm_abi_version(void) { return DICOMM_ABI_VERSION; }

const char *dicomm_status_name(int32_t status) {
  const Entry *entry = find(status);
  return entry == nullptr ? nullptr : entry->name;
}

const char *dicomm_status_group(int32_t status) {
  const Entry *entry = find(status);
  return entry == nullptr ? nullptr : entry->group;
}

const char *dicomm_status_text(int32_t status) {
  const Entry *entry = find(status);
  return entry == nullptr ? nullptr : entry->text;
}

void dicomm_last_error(dicomm_error *out) { dicomm::last.fill(out); }

size_t dicomm_dtype_size(int32_t dtype) {
  switch (dtype) {
#define DICOMM_DTYPE_CASE(name, value, size) \
  case value:                                \
    return size;
    DICOMM_DTYPE_LIST(DICOMM_DTYPE_CASE)
    default:
      return 0;
  }
}
}
