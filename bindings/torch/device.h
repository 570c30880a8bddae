// Tensors that are not in host memory: in that of this rank's chip, which dicomm reads and writes in place,
// or of any other device, whose elements go through host memory by torch's own copies.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/Stream.h>

namespace dicomm::torch_plugin {

// Chosen anew for every operation.
class Placement {
 public:
  // chip: the device whose tensors are in the chip's memory. None: there is no such device.
  explicit Placement(const std::optional<c10::Device> &chip) : chip_(chip) {}

  // The tensor, or a copy of it that dicomm can read.
  at::Tensor readable(const at::Tensor &tensor);
  // The tensor, or memory in its stead whose elements finish() puts into it. read: dicomm also reads it, or
  // may leave elements as they are.
  at::Tensor writable(const at::Tensor &tensor, bool read);

  bool writes_back() const { return !copies_.empty(); }
  // Once the operation is done: writes back and then runs `task`, if any, on the streams of the call. On
  // return all of it has been done, whatever stream looks.
  void finish(const std::function<void()> &task) const;
  // The vendor's stream behind whose work the operation starts; null: the default one, or no chip is used.
  void *stream() const { return stream_; }

 private:
  struct Copy {
    at::Tensor from, to;
  };
  bool on_chip(const at::Tensor &tensor) const { return chip_ && tensor.device() == *chip_; }
  void note(const at::Tensor &tensor);
  void follow_chip();

  std::optional<c10::Device> chip_;
  std::optional<c10::Stream> current_;  // at the call, where some tensor is not in host memory
  void *stream_ = nullptr;
  std::vector<Copy> copies_;
};

}  // namespace dicomm::torch_plugin
