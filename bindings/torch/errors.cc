#include "errors.h"

namespace dicomm::torch_plugin {

void throw_error(const dicomm_error &error) {
  const std::string message = error.message;
  if (error.status == DICOMM_INVALID_ARGUMENT) C10_THROW_ERROR(ValueError, message);
  if (error.status == DICOMM_NOT_SUPPORTED) C10_THROW_ERROR(NotImplementedError, message);
  if (error.status == DICOMM_TIMED_OUT) {
    // The words by which PyTorch's tests, and programs made for its backends, know a time-out.
    const int64_t milliseconds = error.waited_ns / 1'000'000;
    C10_THROW_ERROR(DistBackendError, c10::str("dicomm: Timed out waiting ", milliseconds, "ms: ", message));
  }
  C10_THROW_ERROR(DistBackendError, message);
}

void throw_last_error(const std::string &note) {
  dicomm_error error{};
  dicomm_last_error(&error);
  if (note.empty()) throw_error(error);
  C10_THROW_ERROR(DistBackendError, std::string(error.message) + " " + note);
}

void check(dicomm_status status) {
  if (status != DICOMM_OK) throw_last_error();
}

std::exception_ptr exception_of(const dicomm_error &error) {
  try {
    throw_error(error);
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace dicomm::torch_plugin
