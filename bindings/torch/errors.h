// dicomm's failures as the exceptions PyTorch users know.
#pragma once

#include <exception>
#include <string>

#include <c10/util/Exception.h>

#include "dicomm/dicomm.h"

namespace dicomm::torch_plugin {

// INVALID_ARGUMENT -> ValueError, NOT_SUPPORTED -> NotImplementedError, all else -> DistBackendError.
[[noreturn]] void throw_error(const dicomm_error &error);
// The failure of the last call on this thread; `note` is appended to its message.
[[noreturn]] void throw_last_error(const std::string &note = "");
void check(dicomm_status status);
std::exception_ptr exception_of(const dicomm_error &error);

}  // namespace dicomm::torch_plugin
