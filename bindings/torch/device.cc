#include "device.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace dicomm::torch_plugin {

at::Tensor Placement::readable(const at::Tensor &tensor) {
  if (tensor.is_cpu()) return tensor;
  at::NoGradGuard no_grad;
  note(tensor);
  if (!on_chip(tensor)) return tensor.to(at::kCPU).contiguous();
  const auto run = tensor.contiguous();
  follow_chip();
  return run;
}

at::Tensor Placement::writable(const at::Tensor &tensor, bool read) {
  if (tensor.is_cpu()) return tensor;
  at::NoGradGuard no_grad;
  note(tensor);
  const bool here = on_chip(tensor);
  at::Tensor memory = tensor;
  if (!here || !tensor.is_contiguous()) {
    const auto device = here ? tensor.device() : c10::Device(at::kCPU);
    memory = at::empty(tensor.sizes(), tensor.options().device(device));
    if (read) memory.copy_(tensor);
    copies_.push_back({memory, tensor});
  }
  if (here) follow_chip();
  return memory;
}

void Placement::note(const at::Tensor &tensor) {
  if (!current_) current_ = c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device());
  if (chip_ && chip_->type() == tensor.device().type() && !on_chip(tensor)) {
    TORCH_WARN_ONCE("dicomm: a tensor is on ", tensor.device(), ", but this rank's chip is ", *chip_,
                    ": its elements go through host memory. Make the rank's device the current one before "
                    "init_process_group(), or set DICOMM_DEVICE_INDEX");
  }
}

// The operation starts after what has been enqueued by then, this call's own copies included.
void Placement::follow_chip() {
  const c10::impl::VirtualGuardImpl guard(chip_->type());
  const auto stream = guard.getStream(*chip_);
  try {
    stream_ = stream.native_handle();
  } catch (const c10::Error &) {
    guard.synchronizeStream(stream);  // torch's part for this device does not tell the vendor's stream
  }
}

void Placement::finish(const std::function<void()> &task) const {
  at::NoGradGuard no_grad;
  const c10::OptionalStreamGuard streams(current_);
  for (const auto &copy : copies_) {
    const c10::impl::VirtualGuardImpl guard(copy.to.device().type());
    auto to = copy.to;
    to.copy_(copy.from);
    guard.synchronizeStream(guard.getStream(to.device()));
  }
  if (!task) return;
  task();
  if (current_) current_->synchronize();
}

}  // namespace dicomm::torch_plugin
