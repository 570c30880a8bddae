// Tensors as the blocks of a dicomm_op. Nothing is copied here: strided tensors in host memory travel as
// layouts.
#pragma once

#include <deque>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "dicomm/dicomm.h"

namespace dicomm::torch_plugin {

// A type dicomm does not know travels as an unsigned integer of its width.
int32_t move_dtype(const at::Tensor &tensor);
// NotImplementedError for a type without arithmetic in dicomm.
int32_t reduce_dtype(const at::Tensor &tensor);

// Throws unless dicomm can read (write) the tensor: defined, dense, in some memory; a written one must be
// what memory holds, without several elements in one place, as expanded tensors have.
void check_input(const at::Tensor &tensor);
void check_output(const at::Tensor &tensor);
// All of one dtype.
void check_same_dtype(const at::Tensor &first, at::TensorList others);

// The same values without a pending conjugation or negation, which only the tensor's view knows of.
at::Tensor resolved(const at::Tensor &tensor);

class Blocks {
 public:
  void add(const at::Tensor &tensor);
  // Null where there are none.
  void give(const dicomm_block *&blocks, int32_t &count) const {
    blocks = blocks_.empty() ? nullptr : blocks_.data();
    count = static_cast<int32_t>(blocks_.size());
  }

 private:
  struct Strided {
    dicomm_layout layout;
    c10::SmallVector<int64_t, 8> shape;
    c10::SmallVector<int64_t, 8> strides;  // in bytes
  };
  c10::SmallVector<dicomm_block, 4> blocks_;
  std::deque<Strided> layouts_;  // blocks_ points into it
};

// PREMUL_SUM's factor, kept for the time of the call.
struct Reduction {
  Reduction(const c10d::ReduceOp &op, const at::Tensor &like);
  void apply(dicomm_op &op) const;

 private:
  int32_t reduce_ = DICOMM_SUM;
  double factor_ = 1.0;
  at::Tensor factor_tensor_;
};

}  // namespace dicomm::torch_plugin
