// An MPI library in this process: its functions and handles, what of our dtypes and operations it reduces as
// dicomm does, and how its requests are waited for.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/dynamic_library.h"
#include "base/error.h"
#include "ccl/mpi/abi.h"

namespace dicomm::mpi {

// Shared by the groups, and by threads and operations that MPI has not given back.
struct Library {
  DynamicLibrary file;
  Functions call;
  Abi abi;
  int version = 0;   // of the standard: 3.1 is 30100
  std::string name;  // "Open MPI v5.0.11", without what follows
  int world_rank = 0, world_size = 1;
  // MPI cannot take back a collective that has begun. Once one was left, nothing may make MPI go on any more:
  // it would write into memory that is no longer the operation's.
  std::atomic<bool> left{false};

  // The MPI that the process has already, else the first that the loader finds. Initialises it where nobody
  // has. NOT_SUPPORTED when there is none, or it was finalised or does not serve threads.
  static Status open(std::shared_ptr<Library> &out);
  std::string describe() const { return name + " (" + file.file() + ")"; }
  // The failure that a code of `function` means.
  Status failure(int code, const char *function) const;
  // Refuses where an operation was left.
  Status usable() const;

  // Their operation, where it does to the dtype what dicomm's does.
  std::optional<Handle> reducing(dicomm_dtype dtype, dicomm_reduce op) const;

 private:
  Status find_handles();
  Status initialise();
};

// Waits until all requests are done: OK; or failed: the first failure; or `over` says to stop, or the
// deadline has passed: ABORTED or TIMED_OUT, and `requests` holds those that are not done.
Status wait_all(const Library &library, std::vector<Handle> &requests, Nanos deadline,
                const std::function<bool()> &over);

}  // namespace dicomm::mpi
