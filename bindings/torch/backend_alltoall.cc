#include <torch/csrc/distributed/c10d/Utils.hpp>

#include "backend.h"

namespace dicomm::torch_plugin {

using c10d::OpType;

namespace {

// The pieces of `tensor` for each rank: `splits` rows each, or equal parts.
std::vector<at::Tensor> pieces(const at::Tensor &tensor, const std::vector<int64_t> &splits, int size) {
  c10d::checkSplitSizes(splits, tensor, size);
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> out;
  int64_t row = 0;
  for (int rank = 0; rank < size; ++rank) {
    const int64_t rows = splits.empty() ? tensor.size(0) / size : splits[rank];
    out.push_back(tensor.narrow(0, row, rows));
    row += rows;
  }
  return out;
}

}  // namespace

Backend::WorkPtr Backend::alltoall_base(at::Tensor &output, at::Tensor &input,
                                        std::vector<int64_t> &output_splits,
                                        std::vector<int64_t> &input_splits,
                                        const c10d::AllToAllOptions &options) {
  if (auto *vendor = vendor_->of(input))
    return vendor_->kept(vendor->alltoall_base(output, input, output_splits, input_splits, options));
  check_same_dtype(output, {input});
  check_input(input);
  check_output(output);
  Call call(DICOMM_ALLTOALL);
  call.dtype = move_dtype(input);
  call.timeout_ns = timeout_of(options.timeout);
  for (const auto &piece : pieces(input, input_splits, getSize())) call.input(piece);
  for (const auto &piece : pieces(output, output_splits, getSize())) call.output(piece);
  return work({OpType::ALLTOALL_BASE, "dicomm:all_to_all"}, {input}, std::move(call), {output});
}

Backend::WorkPtr Backend::alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &options) {
  if (auto *vendor = vendor_->of(inputs)) return vendor_->kept(vendor->alltoall(outputs, inputs, options));
  for (const auto *list : {&outputs, &inputs}) {
    TORCH_CHECK_VALUE(static_cast<int>(list->size()) == getSize(), "dicomm: all_to_all got ", list->size(),
                      " tensors for ", getSize(), " ranks");
  }
  check_same_dtype(inputs.front(), inputs);
  check_same_dtype(inputs.front(), outputs);
  Call call(DICOMM_ALLTOALL);
  call.dtype = move_dtype(inputs.front());
  call.timeout_ns = timeout_of(options.timeout);
  for (const auto &input : inputs) call.input(input);
  for (const auto &output : outputs) call.output(output);
  return work({OpType::ALLTOALL, "dicomm:all_to_all"}, inputs, std::move(call), outputs);
}

}  // namespace dicomm::torch_plugin
