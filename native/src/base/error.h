// Status: what every fallible internal function returns. Cheap when all is well (one null pointer).
//
// Failures are described where they are found, once, by the code that knows the cause; callers add
// what only they know (op, rank, peer) with the with_* functions and pass the same Status on.
#pragma once

#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "dicomm/dicomm.h"

namespace dicomm {

struct Failure {
  dicomm_status code = DICOMM_OK;
  std::string text = {};  // the cause and what to do about it; no trailing period
  std::string op = {};
  std::string path = {};
  std::string peer_host = {};
  std::string foreign_domain = {};  // "errno", ...
  int foreign_code = 0;
  int rank = -1;
  int peer = -1;
  int64_t seq = -1;
  uint64_t bytes = 0;
  int64_t waited_ns = 0;
};

template <class... Parts>
std::string concat(const Parts &...parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

class [[nodiscard]] Status {
 public:
  Status() = default;
  template <class... Parts>
  static Status make(dicomm_status code, const Parts &...parts) {
    Failure failure;
    failure.code = code;
    failure.text = concat(parts...);
    return Status(std::move(failure));
  }
  // SYSTEM (or `code`) with errno's name and text appended; foreign_domain "errno".
  template <class... Parts>
  static Status from_errno(int error, const Parts &...parts) {
    return system_failure(DICOMM_SYSTEM, error, concat(parts...));
  }
  static Status system_failure(dicomm_status code, int error, std::string_view what);
  explicit Status(Failure failure) : failure_(std::make_shared<Failure>(std::move(failure))) {}

  bool ok() const { return !failure_; }
  explicit operator bool() const = delete;
  dicomm_status code() const { return failure_ ? failure_->code : DICOMM_OK; }
  const Failure *failure() const { return failure_.get(); }
  // A copy with changes; the original may be shared by several requests.
  template <class Change>
  Status with(Change &&change) const {
    if (!failure_) return *this;
    Failure copy = *failure_;
    change(copy);
    return Status(std::move(copy));
  }
  // The one sentence users read: op, seq, rank, peer, path, bytes, time waited, cause, foreign code.
  std::string message() const;
  std::string sentence() const;  // the same without the status' name
  void fill(dicomm_error *out) const;

 private:
  std::shared_ptr<const Failure> failure_;
};

// Leaves the calling function with a failure.
#define DICOMM_TRY(expression)                                               \
  do {                                                                       \
    if (auto try_status = (expression); !try_status.ok()) return try_status; \
  } while (0)

}  // namespace dicomm
