// Contract: a vendor's collective library (NCCL and its family, HCCL, ...) under one table.
//
// A library serves the ranks of one island. It enqueues work on a stream and is told nothing of other
// islands; the caller combines islands. Libraries are opened with dlopen, never linked: one file for the
// whole NCCL family, whose members differ by a table row (soname, symbol prefix, enum map), one file per
// other library. Their codes are mapped to Status by a table and kept in Failure::foreign_code, never cast.
//
// The arithmetic is the vendor's: unlike device/host it may round 16- and 8-bit floats at every addition,
// drop NaN in min and max, and divide before it adds. The caller asks only for what it can accept.
//
// Threads: a CclGroup belongs to one thread at a time; different groups may be used at once from different
// threads, but the collective calls of groups that share ranks must be made in one order on all ranks, as
// vendors demand. The engine lock is never held: every call may block in the vendor's code for as long as the
// vendor likes, unless it says otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "device/device.h"
#include "dicomm/dicomm.h"

namespace dicomm {

// What a library does itself. The caller works round the rest: avg by sum and one division, alltoall by
// grouped send and recv, a missing dtype by moving it as bytes where no arithmetic is needed.
struct CclCapabilities {
  std::function<bool(dicomm_dtype dtype, dicomm_reduce op)> reduces;  // pure
  std::function<bool(dicomm_dtype dtype)> moves;                      // pure
  bool send_recv = false;                                             // point to point, also grouped
  bool aborts = false;        // abort() frees ranks that wait inside the library
  bool tells_errors = false;  // async_error() notices a dead peer
  int version = 0;            // the vendor's own number
};

// Made by one rank of the island, carried to the others by the caller, used once.
using CclId = std::vector<std::byte>;

// The ranks of one island. All operations are out of place or exactly in place, on device memory of the
// Device given to join, whose memory the caller keeps alive until an event recorded on `stream` behind the
// call is done. Counts are elements and may be 0. Every rank of the group makes the same calls in the same
// order. OK means enqueued, not done: failures of the work itself show in async_error() or the stream's
// events. After any other status the group can only be aborted.
class CclGroup {
 public:
  // Without close() or abort() before it: as abort().
  virtual ~CclGroup() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  virtual Status broadcast(const void *send, void *recv, uint64_t count, dicomm_dtype dtype, int root,
                           Stream &stream) = 0;
  virtual Status allreduce(const void *send, void *recv, uint64_t count, dicomm_dtype dtype, dicomm_reduce op,
                           Stream &stream) = 0;
  // recv: on the root; elsewhere ignored.
  virtual Status reduce(const void *send, void *recv, uint64_t count, dicomm_dtype dtype, dicomm_reduce op,
                        int root, Stream &stream) = 0;
  // recv: size() * count elements.
  virtual Status allgather(const void *send, void *recv, uint64_t count, dicomm_dtype dtype,
                           Stream &stream) = 0;
  // send: size() * count elements.
  virtual Status reduce_scatter(const void *send, void *recv, uint64_t count, dicomm_dtype dtype,
                                dicomm_reduce op, Stream &stream) = 0;
  // What PREMUL_SUM multiplies this rank's input by from now on: one element of dtype in host memory, read
  // here. NOT_SUPPORTED where reduces(dtype, PREMUL_SUM) is false.
  virtual Status set_factor(const void *, dicomm_dtype) {
    return Status::make(DICOMM_NOT_SUPPORTED, "this library has no premul_sum");
  }
  // NOT_SUPPORTED without CclCapabilities::send_recv. Between begin and end sends and receives are only
  // collected, and no other operation may be called; end enqueues them as one, in which they may wait for one
  // another. The streams they were given must live until then. No rank sends to itself.
  virtual Status send(const void *data, uint64_t count, dicomm_dtype dtype, int peer, Stream &stream) = 0;
  virtual Status recv(void *data, uint64_t count, dicomm_dtype dtype, int peer, Stream &stream) = 0;
  virtual Status begin() = 0;
  virtual Status end() = 0;

  // What has gone wrong since join, if the library can tell; does not block. Callable from any thread.
  virtual Status async_error() = 0;
  // Ends the group without waiting for peers. Enqueued work may end with wrong data or an error. Callable
  // from any thread, also while another is inside a call, which then returns ABORTED; only the first call
  // does anything. Does not block longer than timeout_ns: what the vendor has not given back by then is left
  // to the process's end.
  virtual void abort(int64_t timeout_ns) = 0;
  // Collective. Waits for enqueued work, at most timeout_ns, then as abort(). Afterwards only the destructor
  // may be called.
  virtual Status close(int64_t timeout_ns) = 0;
};

class Ccl {
 public:
  // Its groups must be gone. The library stays loaded: vendors do not survive dlclose.
  virtual ~Ccl() = default;
  virtual const char *name() const = 0;      // "nccl", "rccl", "hccl", ...
  virtual const char *vendor() const = 0;    // Device::vendor() it serves
  virtual std::string describe() const = 0;  // file and version, for people
  virtual CclCapabilities capabilities() const = 0;

  // Called inside Device::with_current of the rank that makes it: some vendors put the chip's address into
  // it.
  virtual Status make_id(CclId &out) = 0;
  // Collective over `size` ranks that hold the same id. Returns within about timeout_ns: TIMED_OUT when a
  // rank did not come. After a failure nothing of the group is left on this rank, but for a thread inside a
  // vendor's code that does not come back; it no longer touches the Device.
  virtual Status join(const CclId &id, int rank, int size, Device &device, int64_t timeout_ns,
                      std::unique_ptr<CclGroup> &out) = 0;
};

}  // namespace dicomm
