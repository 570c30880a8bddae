// The libraries of the NCCL family, and what of our dtypes and operations each knows. A new member is a row
// of members.cc.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ccl/ccl.h"
#include "ccl/nccl/abi.h"

namespace dicomm::nccl {

struct Member {
  std::string name;                // Ccl::name(), and the domain of its codes
  std::string title;               // for people
  std::string vendor;              // Device::vendor()
  std::string prefix;              // of every symbol
  std::vector<std::string> files;  // tried in this order
  std::string how;                 // to get it: a sentence without its period
  bool float8_arithmetic = true;   // its 8-bit floats are the OCP's on all of the vendor's chips
};

const std::vector<Member> &members();

// How an operation's elements are handed over.
struct Wire {
  int dtype = 0;          // theirs
  uint64_t elements = 1;  // of theirs in one of ours
};

// For operations that only move: every dtype, as bytes where the library does not know it.
Wire moving(int version, dicomm_dtype dtype);

struct Reduction {
  Wire wire;
  int op = 0;  // theirs; for premul_sum made for each factor
};
// Nothing where the library does not reduce this dtype by this operation.
std::optional<Reduction> reducing(const Member &member, int version, dicomm_dtype dtype, dicomm_reduce op);

}  // namespace dicomm::nccl
