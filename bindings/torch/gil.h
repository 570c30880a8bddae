// The interpreter lock, seen from code that may or may not hold it.
#pragma once

#include <optional>

#include <torch/csrc/utils/pybind.h>

namespace dicomm::torch_plugin {

// Gives the lock up for a scope that may block, when this thread holds it.
class GilReleased {
 public:
  GilReleased() {
    if (Py_IsInitialized() && PyGILState_Check()) release_.emplace();
  }

 private:
  std::optional<pybind11::gil_scoped_release> release_;
};

// After a signal: runs Python's handlers; throws what they raise (KeyboardInterrupt).
inline void check_signals() {
  pybind11::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
}

}  // namespace dicomm::torch_plugin
