// What groups over vendors' libraries have in common: who may be inside the vendor's code, the Device current
// there, and sends and receives collected between begin and end.
#pragma once

#include <optional>
#include <vector>

#include "ccl/ccl.h"
#include "ccl/gate.h"

namespace dicomm {

struct CclTransfer {
  const void *send;  // or null
  void *recv;        // or null
  uint64_t count;
  dicomm_dtype dtype;
  int peer;
  Stream *stream;
};

// Calls body(stream), which enqueues work on the first of the streams; the others are joined with it before
// and after.
Status on_one_stream(const std::vector<Stream *> &streams, const std::function<Status(Stream &stream)> &body);
template <class Call>
std::vector<Stream *> streams_of(const std::vector<Call> &calls) {
  std::vector<Stream *> streams;
  for (const Call &call : calls) streams.push_back(call.stream);
  return streams;
}
// Bools are bytes that hold 0 or 1: what is logical is a minimum or a maximum of them. Empty for bxor, avg
// and premul_sum.
std::optional<dicomm_reduce> reducing_bytes(dicomm_reduce logical);

class CclGroupBase : public CclGroup {
 public:
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Status send(const void *data, uint64_t count, dicomm_dtype dtype, int peer, Stream &stream) final;
  Status recv(void *data, uint64_t count, dicomm_dtype dtype, int peer, Stream &stream) final;
  Status begin() final;
  Status end() final;

 protected:
  CclGroupBase(int rank, int size, Device &device) : device_(device), rank_(rank), size_(size) {}

  // As CclCapabilities::send_recv.
  virtual bool transfers() const = 0;
  // Enqueues one, outside of begin and end.
  virtual Status transfer(const CclTransfer &one) = 0;
  // Enqueues all as one; they may wait for one another. The vendor's own group, where there is one, is opened
  // and closed in here, so that an abort between begin and end leaves nothing of it open.
  virtual Status transfer_together(const std::vector<CclTransfer> &all) = 0;

  // For every collective operation; 0 where there is no root.
  Status check_collective(int root) const;
  // Calls body with the Device current, unless the group has ended. ABORTED when it ends meanwhile and body
  // fails: what a vendor says of a group that is aborted under it says nothing.
  Status inside(const std::function<Status()> &body);

  Device &device_;
  Gate gate_;

 private:
  Status add(const CclTransfer &one);

  const int rank_;
  const int size_;
  std::optional<std::vector<CclTransfer>> collected_;  // between begin and end
};

}  // namespace dicomm
