// CclGroup over one MPI communicator. A call of the contract becomes non-blocking calls of MPI's, made and
// waited for on the stream's thread.
#pragma once

#include <memory>
#include <vector>

#include "ccl/group_base.h"
#include "ccl/mpi/meeting.h"
#include "ccl/mpi/session.h"

namespace dicomm::mpi {

class Group final : public CclGroupBase {
 public:
  static Status join(std::shared_ptr<Library> library, const Id &id, int rank, int size, Device &device,
                     int64_t timeout_ns, std::unique_ptr<CclGroup> &out);

  Group(std::shared_ptr<Library> library, Handle comm, int rank, int size, Device &device)
      : CclGroupBase(rank, size, device), session_(std::make_shared<Session>(std::move(library), comm)) {}
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
  bool transfers() const override { return true; }
  Status transfer(const CclTransfer &one) override;
  Status transfer_together(const std::vector<CclTransfer> &all) override;
  void add(const CclTransfer &one, Work &work) const;
  Status enqueue(std::shared_ptr<Work> work, Stream &stream);
  Status reducing(dicomm_dtype dtype, dicomm_reduce op, Handle &their_dtype, Handle &their_op) const;

  const std::shared_ptr<Session> session_;
};

}  // namespace dicomm::mpi
