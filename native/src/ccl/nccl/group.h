// CclGroup over one communicator of the NCCL family.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "ccl/gate.h"
#include "ccl/nccl/library.h"

namespace dicomm::nccl {

class Group final : public CclGroup {
 public:
  static Status join(std::shared_ptr<const Library> library, const UniqueId &id, int rank, int size,
                     Device &device, int64_t timeout_ns, std::unique_ptr<CclGroup> &out);

  Group(std::shared_ptr<const Library> library, Comm comm, int rank, int size, Device &device)
      : library_(std::move(library)), comm_(comm), rank_(rank), size_(size), device_(device) {}
  ~Group() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
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
  Status send(const void *data, uint64_t count, dicomm_dtype dtype, int peer, Stream &stream) override;
  Status recv(void *data, uint64_t count, dicomm_dtype dtype, int peer, Stream &stream) override;
  Status begin() override;
  Status end() override;
  Status async_error() override;
  void abort(int64_t timeout_ns) override;
  Status close(int64_t timeout_ns) override;

 private:
  struct Transfer {
    const void *send;  // or null
    void *recv;        // or null
    size_t count;
    int dtype;
    int peer;
    VendorStream stream;
  };
  struct Factor {
    dicomm_dtype dtype;
    int op;
  };

  template <class Call>
  Status enter(const char *function, Call &&call);
  template <class Call>
  Status reduction(const char *function, dicomm_dtype dtype, dicomm_reduce op, uint64_t count, Call &&call);
  Status check_collective(int root) const;
  Status transfer(const void *send, void *recv, uint64_t count, dicomm_dtype dtype, int peer, Stream &stream);
  int issue(const Transfer &one) const;
  void release(Nanos deadline);

  const std::shared_ptr<const Library> library_;
  const Comm comm_;
  const int rank_;
  const int size_;
  Device &device_;
  std::optional<Factor> factor_;
  std::optional<std::vector<Transfer>> collected_;  // between begin and end
  Gate gate_;
};

}  // namespace dicomm::nccl
