#include "base/names.h"

#include <array>

#include "dicomm/dicomm.h"

namespace dicomm {

namespace {

struct Name {
  int32_t value;
  const char *upper;
  std::array<char, 24> lower{};
};

constexpr Name make(int32_t value, const char *upper) {
  Name name{value, upper};
  for (size_t i = 0; upper[i] != 0; ++i) {
    name.lower[i] = upper[i] >= 'A' && upper[i] <= 'Z' ? static_cast<char>(upper[i] - 'A' + 'a') : upper[i];
  }
  return name;
}

#define DICOMM_NAME(name, value) make(value, #name),
#define DICOMM_NAME_OF_TYPE(name, value, size) make(value, #name),
constexpr Name kOpcodes[] = {DICOMM_OPCODE_LIST(DICOMM_NAME)};
constexpr Name kDtypes[] = {DICOMM_DTYPE_LIST(DICOMM_NAME_OF_TYPE)};
constexpr Name kReduces[] = {DICOMM_REDUCE_LIST(DICOMM_NAME)};

template <size_t N>
const char *find(const Name (&names)[N], int32_t value) {
  for (const Name &name : names) {
    if (name.value == value) return name.lower.data();
  }
  return "?";
}

}  // namespace

const char *opcode_name(int32_t opcode) { return find(kOpcodes, opcode); }
const char *dtype_name(int32_t dtype) { return find(kDtypes, dtype); }
const char *reduce_name(int32_t reduce) { return find(kReduces, reduce); }

}  // namespace dicomm
