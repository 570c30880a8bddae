#include "transport/verbs/library.h"

namespace dicomm {

namespace {

constexpr const char *kHow =
    "install rdma-core: apt-get install libibverbs1 ibverbs-providers, or dnf install libibverbs";

template <class Function>
void find(const VerbsLibrary &library, const char *symbol, Function &out, std::string &missing) {
  out = reinterpret_cast<Function>(library.file.find(symbol));
  if (out == nullptr) missing += concat(missing.empty() ? "" : ", ", symbol);
}

}  // namespace

Status VerbsLibrary::open(const std::string &name, std::shared_ptr<const VerbsLibrary> &out) {
  auto library = std::make_shared<VerbsLibrary>();
  DICOMM_TRY(library->file.open("RDMA verbs", {name.empty() ? "libibverbs.so.1" : name}, kHow));
  std::string missing, dmabuf;
  ibv::Functions &call = library->call;
#define DICOMM_IBV_FIND(name, result, parameters) find(*library, "ibv_" #name, call.name, missing);
  DICOMM_IBV_FUNCTIONS(DICOMM_IBV_FIND)
#undef DICOMM_IBV_FIND
  find(*library, "_ibv_query_gid_ex", call.query_gid_ex, missing);
  find(*library, "ibv_reg_dmabuf_mr", call.reg_dmabuf_mr, dmabuf);
  if (!missing.empty())
    return Status::make(DICOMM_NOT_SUPPORTED, "libibverbs (", library->file.file(), ") lacks ", missing,
                        ": version 32 of rdma-core or later is needed; ", kHow);
  out = std::move(library);
  return {};
}

Status verbs_failure(int error, const std::string &what) {
  return Status::system_failure(DICOMM_SYSTEM, error, what);
}

}  // namespace dicomm
