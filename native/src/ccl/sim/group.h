// The ranks of one brand, joined. A call of the contract becomes a call of the ABI on the stream's thread.
#pragma once

#include <atomic>
#include <vector>

#include "ccl/ccl.h"
#include "ccl/sim/session.h"

namespace dicomm {

// One operation of the ABI, whose blocks lie beside it.
struct SimCclCall {
  dicomm_op op{};
  dicomm_block send{};
  dicomm_block recv{};
  const void *copy_from = nullptr;  // a broadcast's root: what goes into recv first
  double crossing = 0;              // bytes over this rank's link, each way
  Stream *stream = nullptr;
};

class SimCclGroup final : public CclGroup {
 public:
  // link_gbs: see SimProfile.
  SimCclGroup(CclCapabilities capabilities, double link_gbs, std::shared_ptr<SimCclSession> session)
      : capabilities_(std::move(capabilities)), link_gbs_(link_gbs), session_(std::move(session)) {}
  ~SimCclGroup() override;

  int rank() const override { return session_->rank; }
  int size() const override { return session_->size; }

  Status broadcast(const void *send, void *recv, uint64_t count, dicomm_dtype dtype, int root,
                   Stream &stream) override;
  Status allreduce(const void *send, void *recv, uint64_t count, dicomm_dtype dtype, dicomm_reduce op,
                   Stream &stream) override;
  Status reduce(const void *send, void *recv, uint64_t count, dicomm_dtype dtype, dicomm_reduce op, int root,
                Stream &stream) override;
  Status allgather(const void *send, void *recv, uint64_t count, dicomm_dtype dtype, Stream &stream) override;
  Status reduce_scatter(const void *send, void *recv, uint64_t count, dicomm_dtype dtype, dicomm_reduce op,
                        Stream &stream) override;
  Status send(const void *data, uint64_t count, dicomm_dtype dtype, int peer, Stream &stream) override;
  Status recv(void *data, uint64_t count, dicomm_dtype dtype, int peer, Stream &stream) override;
  Status begin() override;
  Status end() override;
  Status async_error() override { return session_->error(); }
  void abort(int64_t timeout_ns) override;
  Status close(int64_t timeout_ns) override;

 private:
  using Call = SimCclCall;

  Call call(dicomm_opcode opcode, dicomm_dtype dtype, const void *send, uint64_t send_count, void *recv,
            uint64_t recv_count, Stream &stream) const;
  Status check(const Call &call) const;
  Status add(const Call &call);
  Status enqueue(std::vector<Call> calls);
  double others() const { return static_cast<double>(size() - 1) / size(); }

  const CclCapabilities capabilities_;
  const double link_gbs_;
  const std::shared_ptr<SimCclSession> session_;
  std::atomic<bool> ended_{false};
  int depth_ = 0;  // of begin
  std::vector<Call> collected_;
};

}  // namespace dicomm
