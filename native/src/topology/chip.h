// ChipInfo: what a rank computes on, as its peers see it. Pure data.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "dicomm/dicomm.h"

namespace dicomm {

inline constexpr size_t kReduces = DICOMM_PREMUL_SUM + 1;

struct ChipInfo {
  std::string vendor = "cpu";    // the word of Device::vendor(); a simulated chip's brand
  std::string name;              // model, for people
  std::string arch;              // "x86_64", "sm_90"
  std::string library;           // Ccl::name() of its collective library; "" without one
  uint32_t library_version = 0;  // the vendor's own number
  uint64_t memory_bytes = 0;     // 0: not known
  uint64_t dtypes = 0;           // bit 1 << DICOMM_<dtype>: it, and its library, know the dtype
  std::array<uint64_t, kReduces>
      reduces{};           // by dicomm_reduce: the dtypes its library reduces as dicomm does
  bool send_recv = false;  // its library has point-to-point calls
  bool converts = false;   // the chip changes types, scales and divides by itself
  int32_t index = 0;       // as the vendor counts in the rank's process
  std::string id;          // no other chip of the job has it: "PCI 0000:17:00.0 of boot ..."; "": not known
  std::string island;      // the user's word; "": the island follows from vendor and library
  std::string role = "worker";  // or "reducer"
  bool simulated = false;
  bool operator==(const ChipInfo &) const = default;
};

// Every dtype of the ABI: what a chip without a library of its own counts as knowing.
uint64_t all_dtypes();
// "float32 int8 ...": the names of a set, in the order of the ABI's list.
std::string dtype_names(uint64_t dtypes, const char *between);

// Can one group of the vendor's library have both as its ranks?
bool compatible(const ChipInfo &a, const ChipInfo &b);
// The library's version as its vendor writes it: "2.27.3"; "" without a library.
std::string release_of(const ChipInfo &chip);
// For messages: "alpha with alpha-ccl 1", "cpu".
std::string describe(const ChipInfo &chip);

}  // namespace dicomm
