#include "ccl/nccl/library.h"

#include <sched.h>
#include <time.h>

namespace dicomm::nccl {

namespace {

dicomm_status status_of(int code) {
  switch (code) {
    case device_error:
      return DICOMM_DEVICE_FAILED;
    case invalid_argument:
    case invalid_usage:
      return DICOMM_INVALID_ARGUMENT;
    case remote_error:
      return DICOMM_PEER_LOST;
    case timeout:
      return DICOMM_TIMED_OUT;
    default:
      return DICOMM_CCL_FAILED;  // system_error, internal_error, and what later versions add
  }
}

// Their code of a version: 2.8.4 is 2804, 2.10.3 is 21003.
std::string spelled(int version) {
  const int unit = version < 10000 ? 1000 : 10000;
  return concat(version / unit, ".", version % unit / 100, ".", version % 100);
}

}  // namespace

Status Library::open(const Member &member, std::shared_ptr<const Library> &out) {
  auto library = std::make_shared<Library>();
  library->member = member;
  DICOMM_TRY(library->file.open(member.title, member.files, member.how));
  std::string missing;
#define DICOMM_NCCL_FIND(name, always, ...) \
  library->file.find(member.prefix + #name, library->call.name, (always) ? &missing : nullptr);
  DICOMM_NCCL_FUNCTIONS(DICOMM_NCCL_FIND)
#undef DICOMM_NCCL_FIND
  if (!missing.empty())
    return Status::make(DICOMM_NOT_SUPPORTED, member.title, " (", library->file.file(), ") lacks ", missing,
                        ": it is too old, or another library of that name. ", member.how);
  const int code = library->call.GetVersion(&library->version);
  if (code != success) return library->failure(code, "GetVersion");
  out = std::move(library);
  return {};
}

std::string Library::describe() const {
  return concat(member.title, " ", spelled(version), " (", file.file(), ")");
}

Status Library::failure(int code, const char *function) const {
  if (code == success) return {};
  Failure failure;
  failure.code = status_of(code);
  failure.foreign_domain = member.name;
  failure.foreign_code = code;
  const char *meaning = call.GetErrorString(code);
  failure.text = concat(describe(), ": ", member.prefix, function, ": ",
                        meaning != nullptr ? meaning : "no text for this code");
  const char *last = call.GetLastError != nullptr ? call.GetLastError(nullptr) : nullptr;
  if (last != nullptr && last[0] != 0) failure.text += concat("; its last message: ", last);
  return Status(std::move(failure));
}

void pause_between_questions(int asked) {
  if (asked < 100) {
    ::sched_yield();
    return;
  }
  const timespec interval = {0, 50 * kMicrosecond};
  ::nanosleep(&interval, nullptr);
}

}  // namespace dicomm::nccl
