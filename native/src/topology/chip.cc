#include "topology/chip.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/names.h"

namespace dicomm {

namespace {

// Vendors number in their own ways. The NCCL family writes 2.27.3 as 22703 and promises that ranks of equal
// 2.27 work together; the version of the MPI standard is written likewise. Of a library that is not here only
// equal versions are taken for compatible.
constexpr const char *kNcclNumbering[] = {"nccl", "rccl", "mccl", "ixccl", "mpi"};

bool numbered_as_nccl(const std::string &library) {
  return std::find(std::begin(kNcclNumbering), std::end(kNcclNumbering), library) != std::end(kNcclNumbering);
}

uint32_t series(const ChipInfo &chip) {
  return numbered_as_nccl(chip.library) ? chip.library_version / 100 : chip.library_version;
}

}  // namespace

uint64_t all_dtypes() {
  uint64_t all = 0;
#define DICOMM_BIT(name, value, size) all |= uint64_t{1} << value;
  DICOMM_DTYPE_LIST(DICOMM_BIT)
#undef DICOMM_BIT
  return all;
}

std::string dtype_names(uint64_t dtypes, const char *between) {
  std::string names;
#define DICOMM_ADD(name, value, size) \
  if (dtypes >> value & 1) names += (names.empty() ? "" : between) + std::string(dtype_name(value));
  DICOMM_DTYPE_LIST(DICOMM_ADD)
#undef DICOMM_ADD
  return names;
}

bool compatible(const ChipInfo &a, const ChipInfo &b) {
  return a.vendor == b.vendor && a.library == b.library && a.simulated == b.simulated &&
         series(a) == series(b);
}

std::string release_of(const ChipInfo &chip) {
  const uint32_t version = chip.library_version;
  if (chip.library.empty()) return "";
  if (!numbered_as_nccl(chip.library)) return std::to_string(version);
  return concat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

std::string describe(const ChipInfo &chip) {
  return chip.library.empty() ? chip.vendor
                              : concat(chip.vendor, " with ", chip.library, " ", release_of(chip));
}

}  // namespace dicomm
