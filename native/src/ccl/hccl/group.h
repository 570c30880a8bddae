// CclGroup over one HCCL communicator.
#pragma once

#include <memory>
#include <vector>

#include "ccl/group_base.h"
#include "ccl/hccl/library.h"

namespace dicomm::hccl {

class Group final : public CclGroupBase {
 public:
  static Status join(std::shared_ptr<const Library> library, const RootInfo &id, int rank, int size,
                     Device &device, int64_t timeout_ns, std::unique_ptr<CclGroup> &out);

  Group(std::shared_ptr<const Library> library, Comm comm, int rank, int size, Device &device)
      : CclGroupBase(rank, size, device), library_(std::move(library)), comm_(comm) {}
  ~Group() override;

  Status broadcast(const void *send, void *recv, uint64_t count, dicomm_dtype dtype, int root,
                   Stream &stream) override;
  Status allreduce(const void *send, void *recv, uint64_t count, dicomm_dtype dtype, dicomm_reduce op,
                   Stream &stream) override;
  Status reduce(const void *send, void *recv, uint64_t count, dicomm_dtype dtype, dicomm_reduce op, int root,
                Stream &stream) override;
  Status allgather(const void *send, void *recv, uint64_t count, dicomm_dtype dtype, Stream &stream) override;
  Status reduce_scatter(const void *send, void *recv, uint64_t count, dicomm_dtype dtype, dicomm_reduce op,
                        Stream &stream) override;
  Status async_error() override;
  void abort(int64_t timeout_ns) override;
  Status close(int64_t timeout_ns) override;

 private:
  template <class Call>
  Status enter(const char *function, Call &&call);
  template <class Call>
  Status reduction(const char *function, dicomm_dtype dtype, dicomm_reduce op, uint64_t count, Call &&call);
  bool transfers() const override { return library_->transfers(); }
  Status transfer(const CclTransfer &one) override;
  Status transfer_together(const std::vector<CclTransfer> &all) override;
  Status scratch(size_t bytes, void *&out);
  Status destroy(Nanos deadline);

  const std::shared_ptr<const Library> library_;
  const Comm comm_;
  std::vector<std::unique_ptr<Allocation>>
      scratch_;  // the last is the largest; enqueued work may use the others
};

}  // namespace dicomm::hccl
