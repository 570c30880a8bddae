// Sum of sparse COO tensors: the ranks' indices and values are gathered and added up, in rank order and
// therefore to the same bits everywhere.
//
// The gathered sizes must be known before the gather can start, so this call waits for all ranks to call
// it; only the gather of the values goes on in the background.
#include "backend.h"

namespace dicomm::torch_plugin {

Backend::WorkPtr Backend::allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &options) {
  if (auto *vendor = vendor_->of(tensors)) return vendor_->kept(vendor->allreduce_sparse(tensors, options));
  TORCH_CHECK_VALUE(tensors.size() == 1 && tensors.front().layout() == at::kSparse,
                    "dicomm: a sparse allreduce takes one sparse COO tensor");
  TORCH_CHECK_NOT_IMPLEMENTED(options.reduceOp == c10d::ReduceOp::SUM,
                              "dicomm: sparse tensors can be summed only");
  at::NoGradGuard no_grad;
  auto target = tensors.front();
  const auto mine = target.coalesce();
  const auto indices = mine._indices().contiguous();
  const auto values = mine._values().contiguous();

  c10d::AllgatherOptions gather;
  gather.timeout = options.timeout;
  Tensors counts;
  for (int rank = 0; rank < getSize(); ++rank) counts.push_back(at::zeros({1}, at::kLong));
  auto sizes = start_allgather(counts, at::full({1}, mine._nnz(), at::kLong), gather);
  sizes->wait(DICOMM_TIMEOUT_NEVER);
  if (const auto error = sizes->settle()) std::rethrow_exception(error);

  Tensors all_indices;
  Tensors all_values;
  for (const auto &count : counts) {
    const int64_t nnz = count.item<int64_t>();
    all_indices.push_back(at::empty({indices.size(0), nnz}, indices.options()));
    auto shape = values.sizes().vec();
    shape[0] = nnz;
    all_values.push_back(at::empty(shape, values.options()));
  }
  auto gathered_indices = start_allgather(all_indices, indices, gather);

  Call call(DICOMM_ALLGATHER);
  call.dtype = reduce_dtype(values);
  call.timeout_ns = timeout_of(options.timeout);
  call.input(values);
  for (const auto &output : all_values) call.output(output);
  // Runs when the values are there; the indices were started before them but may arrive later.
  call.epilogue = [target, all_indices, all_values, gathered_indices] {
    gathered_indices->wait(DICOMM_TIMEOUT_NEVER);
    if (const auto error = gathered_indices->settle()) std::rethrow_exception(error);
    at::Tensor sum;
    for (size_t rank = 0; rank < all_values.size(); ++rank) {
      const auto part = at::sparse_coo_tensor(all_indices[rank], all_values[rank], target.sizes(),
                                              all_values[rank].options().layout(at::kSparse));
      sum = sum.defined() ? sum + part : part;
    }
    auto written = target;
    written.copy_(sum.coalesce());
  };
  Operations operations{gathered_indices, start(std::move(call))};
  return work({c10d::OpType::_ALLREDUCE_SPARSE, "dicomm:all_reduce"}, tensors, std::move(operations),
              tensors);
}

}  // namespace dicomm::torch_plugin
