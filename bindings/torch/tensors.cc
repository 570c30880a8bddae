#include "tensors.h"

#include <ATen/MemoryOverlap.h>

namespace dicomm::torch_plugin {

namespace {

bool is_lazy(const at::Tensor &tensor) { return tensor.is_conj() || tensor.is_neg(); }

int32_t known_dtype(at::ScalarType type) {
  switch (type) {
    case at::kByte:
      return DICOMM_UINT8;
    case at::kChar:
      return DICOMM_INT8;
    case at::kUInt16:
      return DICOMM_UINT16;
    case at::kShort:
      return DICOMM_INT16;
    case at::kUInt32:
      return DICOMM_UINT32;
    case at::kInt:
      return DICOMM_INT32;
    case at::kUInt64:
      return DICOMM_UINT64;
    case at::kLong:
      return DICOMM_INT64;
    case at::kBool:
      return DICOMM_BOOL;
    case at::kFloat8_e4m3fn:
      return DICOMM_FLOAT8_E4M3FN;
    case at::kFloat8_e5m2:
      return DICOMM_FLOAT8_E5M2;
    case at::kHalf:
      return DICOMM_FLOAT16;
    case at::kBFloat16:
      return DICOMM_BFLOAT16;
    case at::kFloat:
      return DICOMM_FLOAT32;
    case at::kDouble:
      return DICOMM_FLOAT64;
    case at::kComplexFloat:
      return DICOMM_COMPLEX64;
    case at::kComplexDouble:
      return DICOMM_COMPLEX128;
    default:
      return -1;
  }
}

int32_t dtype_of_width(int64_t bytes) {
  switch (bytes) {
    case 1:
      return DICOMM_UINT8;
    case 2:
      return DICOMM_UINT16;
    case 4:
      return DICOMM_UINT32;
    case 8:
      return DICOMM_UINT64;
    case 16:
      return DICOMM_COMPLEX128;
    default:
      return -1;
  }
}

int32_t reduce_of(c10d::ReduceOp::RedOpType op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
      return DICOMM_SUM;
    case c10d::ReduceOp::AVG:
      return DICOMM_AVG;
    case c10d::ReduceOp::PRODUCT:
      return DICOMM_PROD;
    case c10d::ReduceOp::MIN:
      return DICOMM_MIN;
    case c10d::ReduceOp::MAX:
      return DICOMM_MAX;
    case c10d::ReduceOp::BAND:
      return DICOMM_BAND;
    case c10d::ReduceOp::BOR:
      return DICOMM_BOR;
    case c10d::ReduceOp::BXOR:
      return DICOMM_BXOR;
    case c10d::ReduceOp::PREMUL_SUM:
      return DICOMM_PREMUL_SUM;
    default:
      TORCH_CHECK_VALUE(false, "dicomm: this reduce operation is not one that torch defines arithmetic for");
  }
}

}  // namespace

int32_t move_dtype(const at::Tensor &tensor) {
  int32_t dtype = known_dtype(tensor.scalar_type());
  if (dtype < 0 && !tensor.is_quantized()) dtype = dtype_of_width(tensor.element_size());
  TORCH_CHECK_NOT_IMPLEMENTED(dtype >= 0, "dicomm cannot move tensors of type ", tensor.scalar_type());
  return dtype;
}

int32_t reduce_dtype(const at::Tensor &tensor) {
  const int32_t dtype = known_dtype(tensor.scalar_type());
  TORCH_CHECK_NOT_IMPLEMENTED(dtype >= 0, "dicomm cannot reduce tensors of type ", tensor.scalar_type(),
                              "; convert them first");
  return dtype;
}

void check_input(const at::Tensor &tensor) {
  TORCH_CHECK_VALUE(tensor.defined(), "dicomm: a tensor is undefined");
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == at::kStrided, "dicomm: a tensor has layout ",
                              tensor.layout(),
                              "; only dense tensors are supported here (allreduce also "
                              "takes sparse COO tensors)");
  TORCH_CHECK_NOT_IMPLEMENTED(!tensor.is_meta(),
                              "dicomm: a tensor is on the meta device: it has no elements");
}

void check_output(const at::Tensor &tensor) {
  check_input(tensor);
  TORCH_CHECK_VALUE(!is_lazy(tensor),
                    "dicomm: a tensor to be written is a lazily conjugated or negated view; "
                    "call resolve_conj() or resolve_neg() first");
  TORCH_CHECK_VALUE(at::has_internal_overlap(tensor) != at::MemOverlap::Yes,
                    "dicomm: a tensor to be written has several elements in one place (an expanded "
                    "tensor?); make it contiguous first");
}

void check_same_dtype(const at::Tensor &first, at::TensorList others) {
  for (const auto &other : others) {
    TORCH_CHECK_VALUE(other.scalar_type() == first.scalar_type(),
                      "dicomm: all tensors of one call must have the same dtype, but they have ",
                      first.scalar_type(), " and ", other.scalar_type());
  }
}

at::Tensor resolved(const at::Tensor &tensor) {
  if (!is_lazy(tensor)) return tensor;
  at::NoGradGuard no_grad;
  return tensor.resolve_conj().resolve_neg();
}

void Blocks::add(const at::Tensor &tensor) {
  dicomm_block block{};
  block.data = tensor.data_ptr();
  block.count = tensor.numel();
  if (!tensor.is_contiguous()) {
    auto &strided = layouts_.emplace_back();
    strided.shape.assign(tensor.sizes().begin(), tensor.sizes().end());
    for (const int64_t stride : tensor.strides()) strided.strides.push_back(stride * tensor.element_size());
    strided.layout = {static_cast<int32_t>(tensor.dim()), strided.shape.data(), strided.strides.data()};
    block.layout = &strided.layout;
  }
  blocks_.push_back(block);
}

Reduction::Reduction(const c10d::ReduceOp &op, const at::Tensor &like) : reduce_(reduce_of(op)) {
  if (reduce_ != DICOMM_PREMUL_SUM) return;
  const auto *supplement = dynamic_cast<const c10d::PreMulSumSupplement *>(op.supplement_.get());
  TORCH_CHECK_VALUE(supplement, "dicomm: PREMUL_SUM comes without its factor");
  if (supplement->tensor_factor.defined()) {
    at::NoGradGuard no_grad;
    factor_tensor_ = supplement->tensor_factor.detach().to(at::kCPU, like.scalar_type()).contiguous();
  } else {
    factor_ = supplement->double_factor;
  }
}

void Reduction::apply(dicomm_op &op) const {
  op.reduce = reduce_;
  op.factor = factor_;
  if (factor_tensor_.defined()) op.factor_data = factor_tensor_.const_data_ptr();
}

}  // namespace dicomm::torch_plugin
