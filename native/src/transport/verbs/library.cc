#include "transport/verbs/library.h"

namespace dicomm {

namespace {

constexpr const char *kHow =
    "install rdma-core: apt-get install libibverbs1 ibverbs-providers, or dnf install libibverbs";

}  // namespace

Status VerbsLibrary::open(const std::string &name, std::shared_ptr<const VerbsLibrary> &out) {
  auto library = std::make_shared<VerbsLibrary>();
  DICOMM_TRY(library->file.open("RDMA verbs", {name.empty() ? "libibverbs.so.1" : name}, kHow));
  std::string missing;
  ibv::Functions &call = library->call;
#define DICOMM_IBV_FIND(name, result, parameters) library->file.find("ibv_" #name, call.name, &missing);
  DICOMM_IBV_FUNCTIONS(DICOMM_IBV_FIND)
#undef DICOMM_IBV_FIND
  library->file.find("_ibv_query_gid_ex", call.query_gid_ex, &missing);
  library->file.find("ibv_reg_dmabuf_mr", call.reg_dmabuf_mr, nullptr);
  if (!missing.empty())
    return Status::make(DICOMM_NOT_SUPPORTED, "libibverbs (", library->file.file(), ") lacks ", missing,
                        ": version 32 of rdma-core or later is needed; ", kHow);
  out = std::move(library);
  return {};
}

}  // namespace dicomm
