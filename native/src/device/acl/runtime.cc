#include "device/acl/runtime.h"

namespace dicomm {

namespace {

const char *const kHow =
    "It comes with Huawei's CANN toolkit; source its set_env.sh so that the loader finds it";

dicomm_status status_of(int code) {
  switch (code) {
    case kAclBadAlloc:
    case kAclRtMemoryAllocation:
      return DICOMM_NO_MEMORY;
    case kAclInvalidParam:
    case kAclRtParamInvalid:
    case kAclRtInvalidDevice:
      return DICOMM_INVALID_ARGUMENT;
    case kAclApiNotSupport:
    case kAclRtFeatureNotSupport:
      return DICOMM_NOT_SUPPORTED;
    default:
      return DICOMM_DEVICE_FAILED;
  }
}

}  // namespace

std::vector<std::string> acl_files() {
  return {"libascendcl.so", "/usr/local/Ascend/ascend-toolkit/latest/lib64/libascendcl.so",
          "/usr/local/Ascend/latest/lib64/libascendcl.so"};
}

Status AclRuntime::open(const std::vector<std::string> &files, std::shared_ptr<const AclRuntime> &out) {
  std::shared_ptr<AclRuntime> made(new AclRuntime());
  DICOMM_TRY(made->library_.open("the run time of ascend chips", files, kHow));
#define DICOMM_ACL_FIND(name, ...) DICOMM_TRY(made->find(#name, made->name));
  DICOMM_ACL_FUNCTIONS(DICOMM_ACL_FIND)
#undef DICOMM_ACL_FIND
  // Nobody finalizes it: the trainer uses it, too.
  const int code = made->aclInit(nullptr);
  if (code != kAclRepeatInitialize) DICOMM_TRY(made->check(code, "aclInit"));
  out = std::move(made);
  return {};
}

template <class Function>
Status AclRuntime::find(const std::string &symbol, Function *&out) const {
  out = reinterpret_cast<Function *>(library_.find(symbol));
  if (out != nullptr) return {};
  return Status::make(DICOMM_NOT_SUPPORTED, library_.file(), " has no function ", symbol,
                      "; a newer CANN has it. ", kHow);
}

Status AclRuntime::check(int code, const char *what) const {
  if (code == kAclSuccess) return {};
  const char *message = aclGetRecentErrMsg();
  Failure failure;
  failure.code = status_of(code);
  failure.text = concat(what, " failed", message != nullptr && *message != 0 ? ": " : "",
                        message != nullptr ? message : "");
  failure.foreign_domain = "acl";
  failure.foreign_code = code;
  return Status(std::move(failure));
}

std::string AclRuntime::describe() const {
  int32_t major = 0, minor = 0, patch = 0;
  aclrtGetVersion(&major, &minor, &patch);
  return concat(library_.file(), ", version ", major, ".", minor, ".", patch);
}

}  // namespace dicomm
