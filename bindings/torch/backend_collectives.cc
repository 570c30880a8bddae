#include <torch/csrc/distributed/c10d/Utils.hpp>

#include "backend.h"

namespace dicomm::torch_plugin {

using c10d::OpType;

namespace {

const at::Tensor &only(const std::vector<at::Tensor> &tensors, const char *what) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "dicomm: ", what, " takes one tensor, not ", tensors.size());
  return tensors.front();
}

const std::vector<at::Tensor> &only(const std::vector<std::vector<at::Tensor>> &lists, int size,
                                    const char *what) {
  TORCH_CHECK_VALUE(lists.size() == 1, "dicomm: ", what, " takes one list of tensors, not ", lists.size());
  TORCH_CHECK_VALUE(static_cast<int>(lists.front().size()) == size, "dicomm: ", what, " got ",
                    lists.front().size(), " tensors for ", size, " ranks");
  return lists.front();
}

void check_counts(const at::Tensor &whole, const at::Tensor &part, int size, const char *what) {
  TORCH_CHECK_VALUE(whole.numel() == part.numel() * size, "dicomm: ", what, " has a tensor of ",
                    whole.numel(), " elements that ", size, " ranks with ", part.numel(),
                    " each do not make up");
}

void check_none(const std::vector<std::vector<at::Tensor>> &lists, const char *what) {
  TORCH_CHECK_VALUE(lists.empty(), "dicomm: ", what, " takes a list of tensors on the root only");
}

}  // namespace

Backend::WorkPtr Backend::broadcast(Tensors &tensors, const c10d::BroadcastOptions &options) {
  if (auto *vendor = vendor_->of(tensors)) return vendor_->kept(vendor->broadcast(tensors, options));
  const auto &tensor = only(tensors, "broadcast");
  check_rank(options.rootRank, "root");
  Call call(DICOMM_BROADCAST);
  call.dtype = move_dtype(tensor);
  call.peer = static_cast<int32_t>(options.rootRank);
  call.timeout_ns = timeout_of(options.timeout);
  if (getRank() == options.rootRank) {
    call.input(tensor);
    call.gives_buffer = true;
  } else {
    call.output(tensor);
  }
  return work({OpType::BROADCAST, "dicomm:broadcast"}, tensors, std::move(call), tensors);
}

std::shared_ptr<Operation> Backend::start_allreduce(const at::Tensor &tensor,
                                                    const c10d::AllreduceOptions &options) {
  const Reduction reduction(options.reduceOp, tensor);
  Call call(DICOMM_ALLREDUCE);
  call.dtype = reduce_dtype(tensor);
  call.timeout_ns = timeout_of(options.timeout);
  call.reduction = &reduction;
  call.in_place = true;
  call.output(tensor);
  return start(std::move(call));
}

Backend::WorkPtr Backend::allreduce(Tensors &tensors, const c10d::AllreduceOptions &options) {
  if (auto *vendor = vendor_->of(tensors)) return vendor_->kept(vendor->allreduce(tensors, options));
  const auto &tensor = only(tensors, "allreduce");
  if (tensor.is_sparse()) return allreduce_sparse(tensors, options);
  return work({OpType::ALLREDUCE, "dicomm:all_reduce"}, tensors, Operations{start_allreduce(tensor, options)},
              tensors);
}

Backend::WorkPtr Backend::allreduce_coalesced(Tensors &tensors,
                                              const c10d::AllreduceCoalescedOptions &options) {
  if (auto *vendor = vendor_->of(tensors))
    return vendor_->kept(vendor->allreduce_coalesced(tensors, options));
  Operations operations;
  for (const auto &tensor : tensors) operations.push_back(start_allreduce(tensor, options));
  return work({OpType::ALLREDUCE_COALESCED, "dicomm:all_reduce"}, tensors, std::move(operations), tensors);
}

Backend::WorkPtr Backend::reduce(Tensors &tensors, const c10d::ReduceOptions &options) {
  if (auto *vendor = vendor_->of(tensors)) return vendor_->kept(vendor->reduce(tensors, options));
  const auto &tensor = only(tensors, "reduce");
  check_rank(options.rootRank, "root");
  const Reduction reduction(options.reduceOp, tensor);
  Call call(DICOMM_REDUCE);
  call.dtype = reduce_dtype(tensor);
  call.peer = static_cast<int32_t>(options.rootRank);
  call.timeout_ns = timeout_of(options.timeout);
  call.reduction = &reduction;
  if (getRank() == options.rootRank) {
    call.in_place = true;
    call.output(tensor);
  } else {
    call.input(tensor);
  }
  return work({OpType::REDUCE, "dicomm:reduce"}, tensors, std::move(call), tensors);
}

std::shared_ptr<Operation> Backend::start_allgather(const Tensors &outputs, const at::Tensor &input,
                                                    const c10d::AllgatherOptions &options) {
  check_same_dtype(input, outputs);
  Call call(DICOMM_ALLGATHER);
  call.dtype = move_dtype(input);
  call.timeout_ns = timeout_of(options.timeout);
  call.input(input);
  for (const auto &output : outputs) call.output(output);
  return start(std::move(call));
}

std::shared_ptr<Operation> Backend::start_allgather(const at::Tensor &output, const at::Tensor &input,
                                                    const c10d::AllgatherOptions &options) {
  check_counts(output, input, getSize(), "all_gather");
  return start_allgather(Tensors{output}, input, options);
}

Backend::WorkPtr Backend::allgather(TensorLists &outputs, Tensors &inputs,
                                    const c10d::AllgatherOptions &options) {
  if (auto *vendor = vendor_->of(inputs)) return vendor_->kept(vendor->allgather(outputs, inputs, options));
  const auto &input = only(inputs, "all_gather");
  const auto &parts = only(outputs, getSize(), "all_gather");
  TORCH_CHECK_VALUE(parts[getRank()].numel() == input.numel(),
                    "dicomm: all_gather's output for this rank has ", parts[getRank()].numel(),
                    " elements, its input ", input.numel());
  return work({OpType::ALLGATHER, "dicomm:all_gather"}, inputs,
              Operations{start_allgather(parts, input, options)}, parts);
}

Backend::WorkPtr Backend::_allgather_base(at::Tensor &output, at::Tensor &input,
                                          const c10d::AllgatherOptions &options) {
  if (auto *vendor = vendor_->of(input))
    return vendor_->kept(vendor->_allgather_base(output, input, options));
  return work({OpType::_ALLGATHER_BASE, "dicomm:_all_gather_base"}, {input},
              Operations{start_allgather(output, input, options)}, {output});
}

Backend::WorkPtr Backend::allgather_coalesced(TensorLists &outputs, Tensors &inputs,
                                              const c10d::AllgatherOptions &options) {
  if (auto *vendor = vendor_->of(inputs))
    return vendor_->kept(vendor->allgather_coalesced(outputs, inputs, options));
  TORCH_CHECK_VALUE(static_cast<int>(outputs.size()) == getSize(), "dicomm: allgather_coalesced got ",
                    outputs.size(), " lists for ", getSize(), " ranks");
  for (const auto &list : outputs) {
    TORCH_CHECK_VALUE(list.size() == inputs.size(), "dicomm: allgather_coalesced got a list of ", list.size(),
                      " outputs for ", inputs.size(), " inputs");
  }
  Operations operations;
  Tensors all;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensors parts;
    for (const auto &list : outputs) parts.push_back(list[i]);
    operations.push_back(start_allgather(parts, inputs[i], options));
    all.insert(all.end(), parts.begin(), parts.end());
  }
  return work({OpType::ALLGATHER_COALESCED, "dicomm:all_gather"}, inputs, std::move(operations),
              std::move(all));
}

Backend::WorkPtr Backend::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                          const c10d::AllgatherOptions &options) {
  if (auto *vendor = vendor_->of(inputs))
    return vendor_->kept(vendor->allgather_into_tensor_coalesced(outputs, inputs, options));
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "dicomm: all_gather_into_tensor got ", outputs.size(),
                    " outputs for ", inputs.size(), " inputs");
  Operations operations;
  for (size_t i = 0; i < inputs.size(); ++i) {
    operations.push_back(start_allgather(outputs[i], inputs[i], options));
  }
  return work({OpType::COALESCED, "dicomm:all_gather_into_tensor_coalesced"}, inputs, std::move(operations),
              outputs);
}

Backend::WorkPtr Backend::gather(TensorLists &outputs, Tensors &inputs, const c10d::GatherOptions &options) {
  if (auto *vendor = vendor_->of(inputs)) return vendor_->kept(vendor->gather(outputs, inputs, options));
  const auto &input = only(inputs, "gather");
  check_rank(options.rootRank, "root");
  Call call(DICOMM_GATHER);
  call.dtype = move_dtype(input);
  call.peer = static_cast<int32_t>(options.rootRank);
  call.timeout_ns = timeout_of(options.timeout);
  call.input(input);
  Tensors all;
  if (getRank() == options.rootRank) {
    all = only(outputs, getSize(), "gather");
    check_same_dtype(input, all);
    for (const auto &output : all) call.output(output);
  } else {
    check_none(outputs, "gather");
  }
  return work({OpType::GATHER, "dicomm:gather"}, inputs, std::move(call), std::move(all));
}

Backend::WorkPtr Backend::scatter(Tensors &outputs, TensorLists &inputs,
                                  const c10d::ScatterOptions &options) {
  if (auto *vendor = vendor_->of(outputs)) return vendor_->kept(vendor->scatter(outputs, inputs, options));
  const auto &output = only(outputs, "scatter");
  check_rank(options.rootRank, "root");
  Call call(DICOMM_SCATTER);
  call.dtype = move_dtype(output);
  call.peer = static_cast<int32_t>(options.rootRank);
  call.timeout_ns = timeout_of(options.timeout);
  call.output(output);
  Tensors all;
  if (getRank() == options.rootRank) {
    all = only(inputs, getSize(), "scatter");
    check_same_dtype(output, all);
    for (const auto &input : all) call.input(input);
  } else {
    check_none(inputs, "scatter");
  }
  return work({OpType::SCATTER, "dicomm:scatter"}, all, std::move(call), outputs);
}

Backend::WorkPtr Backend::reduce_scatter(Tensors &outputs, TensorLists &inputs,
                                         const c10d::ReduceScatterOptions &options) {
  if (auto *vendor = vendor_->of(outputs))
    return vendor_->kept(vendor->reduce_scatter(outputs, inputs, options));
  const auto &output = only(outputs, "reduce_scatter");
  const auto &parts = only(inputs, getSize(), "reduce_scatter");
  check_same_dtype(output, parts);
  const Reduction reduction(options.reduceOp, output);
  Call call(DICOMM_REDUCE_SCATTER);
  call.dtype = reduce_dtype(output);
  call.timeout_ns = timeout_of(options.timeout);
  call.reduction = &reduction;
  for (const auto &part : parts) call.input(part);
  call.output(output);
  return work({OpType::REDUCE_SCATTER, "dicomm:reduce_scatter"}, parts, std::move(call), outputs);
}

std::shared_ptr<Operation> Backend::start_reduce_scatter(const at::Tensor &output, const at::Tensor &input,
                                                         const c10d::ReduceScatterOptions &options) {
  check_counts(input, output, getSize(), "reduce_scatter");
  check_same_dtype(output, {input});
  const Reduction reduction(options.reduceOp, output);
  Call call(DICOMM_REDUCE_SCATTER);
  call.dtype = reduce_dtype(output);
  call.timeout_ns = timeout_of(options.timeout);
  call.reduction = &reduction;
  call.input(input);
  call.output(output);
  return start(std::move(call));
}

Backend::WorkPtr Backend::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                               const c10d::ReduceScatterOptions &options) {
  if (auto *vendor = vendor_->of(output))
    return vendor_->kept(vendor->_reduce_scatter_base(output, input, options));
  return work({OpType::_REDUCE_SCATTER_BASE, "dicomm:_reduce_scatter_base"}, {input},
              Operations{start_reduce_scatter(output, input, options)}, {output});
}

Backend::WorkPtr Backend::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                          const c10d::ReduceScatterOptions &options) {
  if (auto *vendor = vendor_->of(outputs))
    return vendor_->kept(vendor->reduce_scatter_tensor_coalesced(outputs, inputs, options));
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "dicomm: reduce_scatter_tensor got ", outputs.size(),
                    " outputs for ", inputs.size(), " inputs");
  Operations operations;
  for (size_t i = 0; i < inputs.size(); ++i) {
    operations.push_back(start_reduce_scatter(outputs[i], inputs[i], options));
  }
  return work({OpType::REDUCE_SCATTER_TENSOR_COALESCED, "dicomm:reduce_scatter_tensor_coalesced"}, inputs,
              std::move(operations), outputs);
}

Backend::WorkPtr Backend::barrier(const c10d::BarrierOptions &options) {
  if (auto *vendor = vendor_->of(options)) return vendor_->kept(vendor->barrier(options));
  Call call(DICOMM_BARRIER);
  call.timeout_ns = timeout_of(options.timeout);
  return work({OpType::BARRIER, "dicomm:barrier"}, {}, std::move(call), {});
}

}  // namespace dicomm::torch_plugin
