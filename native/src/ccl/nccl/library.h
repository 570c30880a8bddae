// One library of the NCCL family: its functions, and what its codes mean.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/dynamic_library.h"
#include "ccl/ccl.h"
#include "ccl/nccl/members.h"

namespace dicomm::nccl {

// Opened once, shared by the groups and by threads that a vendor has not given back.
struct Library {
  Member member;
  DynamicLibrary file;
  Functions call;
  int version = 0;

  static Status open(const Member &member, std::shared_ptr<const Library> &out);

  // May a communicator be asked not to block? Then its calls may return in_progress.
  bool non_blocking() const {
    return call.CommInitRankConfig != nullptr && call.CommGetAsyncError != nullptr &&
           version >= kNonBlockingFrom;
  }
  std::string describe() const;  // "NCCL 2.32.3 (/usr/lib/libnccl.so.2.32.3)"
  // The failure that a code of `function` means.
  Status failure(int code, const char *function) const;
  // Asks until the communicator is no longer in progress. TIMED_OUT at the deadline; ABORTED as soon as
  // stop() is true.
  template <class Stop>
  Status settle(Comm comm, int code, const char *function, Nanos deadline, Stop &&stop) const;
};

// Asked often at first, then every 50 us.
void pause_between_questions(int asked);

template <class Stop>
Status Library::settle(Comm comm, int code, const char *function, Nanos deadline, Stop &&stop) const {
  for (int asked = 0; code == in_progress; ++asked) {
    if (stop()) return Status::make(DICOMM_ABORTED, describe(), ": left inside ", member.prefix, function);
    if (now() >= deadline)
      return Status::make(DICOMM_TIMED_OUT, describe(), ": ", member.prefix, function,
                          " is still in progress");
    pause_between_questions(asked);
    if (const int asking = call.CommGetAsyncError(comm, &code); asking != success) code = asking;
  }
  return failure(code, function);
}

}  // namespace dicomm::nccl
