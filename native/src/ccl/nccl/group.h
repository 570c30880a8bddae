// CclGroup over one communicator of the NCCL family.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "ccl/group_base.h"
#include "ccl/nccl/library.h"

namespace dicomm::nccl {

class Group final : public CclGroupBase {
 public:
  static Status join(std::shared_ptr<const Library> library, const UniqueId &id, int rank, int size,
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
  Status set_factor(const void *element, dicomm_dtype dtype) override;
  Status async_error() override;
  void abort(int64_t timeout_ns) override;
  Status close(int64_t timeout_ns) override;

 private:
  struct Factor {
    dicomm_dtype dtype;
    int op;
  };

  template <class Call>
  Status enter(const char *function, Call &&call);
  template <class Call>
  Status reduction(const char *function, dicomm_dtype dtype, dicomm_reduce op, uint64_t count, Call &&call);
  bool transfers() const override;
  Status transfer(const CclTransfer &one) override;
  Status transfer_together(const std::vector<CclTransfer> &all) override;
  int issue(const CclTransfer &one) const;
  void release(Nanos deadline);

  const std::shared_ptr<const Library> library_;
  const Comm comm_;
  std::optional<Factor> factor_;
};

}  // namespace dicomm::nccl
