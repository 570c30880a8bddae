// What every ABI function needs: no exception gets out, a failure is remembered for dicomm_last_error.
#pragma once

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "base/names.h"
#include "device/host/wire_codec.h"

namespace dicomm {

// Per thread, because the ABI returns only a code.
void remember(const Status &status);

template <class Body>
dicomm_status guard(Body &&body) noexcept {
  Status status;
  try {
    status = body();
  } catch (const std::bad_alloc &) {
    status = Status::make(DICOMM_NO_MEMORY, "memory could not be allocated");
  } catch (const std::exception &error) {
    status = Status::make(DICOMM_INTERNAL, "unexpected: ", error.what());
  }
  if (!status.ok()) remember(status);
  return status.code();
}

inline size_t answer(const std::string &text, char *buf, size_t cap) {
  if (buf != nullptr && cap > 0) {
    const size_t n = std::min(cap - 1, text.size());
    std::memcpy(buf, text.data(), n);
    buf[n] = 0;
  }
  return text.size();
}

// Options of an older caller end earlier: what it does not know stays zero.
template <class Options>
Options read_options(const Options *given) {
  Options options{};
  if (given != nullptr) std::memcpy(&options, given, std::min(given->size, sizeof options));
  return options;
}

inline std::string text_or_empty(const char *text) {
  return text == nullptr ? std::string() : std::string(text);
}

// dicomm_comm_options::wire_dtype and its like: 0 is none.
inline Status read_wire(int32_t given, std::optional<dicomm_dtype> &out) {
  if (given == 0) return {};
  out = static_cast<dicomm_dtype>(given);
  if (can_encode(*out)) return {};
  return Status::make(DICOMM_INVALID_ARGUMENT, "wire_dtype is ", dtype_name(given),
                      "; it must be bfloat16, float16, float8_e4m3fn or float8_e5m2");
}

// DICOMM_TIMEOUT_NEVER -> kNever, DICOMM_TIMEOUT_DEFAULT and 0 -> fallback.
inline Nanos timeout_or(int64_t timeout, Nanos fallback) {
  if (timeout == DICOMM_TIMEOUT_NEVER) return kNever;
  return timeout <= 0 ? fallback : timeout;
}

inline constexpr Nanos kDefaultTimeout = 30 * 60 * kSecond;

}  // namespace dicomm
