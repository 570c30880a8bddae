// HCCL: its functions, what of our dtypes and operations it knows, and what its codes mean.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/dynamic_library.h"
#include "ccl/ccl.h"
#include "ccl/hccl/abi.h"

namespace dicomm::hccl {

// Where it is installed.
std::vector<std::string> files();

// Opened once, shared by the groups and by threads that the vendor has not given back.
struct Library {
  DynamicLibrary file;
  Functions call;

  static Status open(const std::vector<std::string> &files, std::shared_ptr<const Library> &out);
  // "HCCL (/usr/local/Ascend/.../libhccl.so)": it has no function that tells its version; the path has it.
  std::string describe() const { return "HCCL (" + file.file() + ")"; }
  // The failure that a code of `function` means.
  Status failure(int code, const char *function) const;
  // Point to point, also grouped.
  bool transfers() const {
    return call.Send != nullptr && call.Recv != nullptr && call.BatchSendRecv != nullptr;
  }
};

// How an operation's elements are handed over.
struct Wire {
  int dtype = 0;          // theirs
  uint64_t elements = 1;  // of theirs in one of ours
};

// For operations that only move: every dtype, as bytes where the library does not know it.
Wire moving(dicomm_dtype dtype);

struct Reduction {
  Wire wire;
  int op = 0;  // theirs
};
// Nothing where the library does not reduce this dtype by this operation on the chips of the A2 series and
// later. Older chips also lack int16 and bfloat16, which only they tell, when they are asked.
std::optional<Reduction> reducing(dicomm_dtype dtype, dicomm_reduce op);

}  // namespace dicomm::hccl
