#include "ccl/hccl/hccl.h"

#include <cstring>

#include "ccl/hccl/group.h"

namespace dicomm {

namespace {

class HcclCcl final : public Ccl {
 public:
  explicit HcclCcl(std::shared_ptr<const hccl::Library> library) : library_(std::move(library)) {}

  const char *name() const override { return "hccl"; }
  const char *vendor() const override { return "ascend"; }
  std::string describe() const override { return library_->describe(); }

  CclCapabilities capabilities() const override {
    CclCapabilities out;
    out.reduces = [](dicomm_dtype dtype, dicomm_reduce op) { return hccl::reducing(dtype, op).has_value(); };
    out.moves = [](dicomm_dtype dtype) { return dicomm_dtype_size(dtype) > 0; };
    out.send_recv = library_->transfers();
    out.aborts = false;
    out.tells_errors = library_->call.GetCommAsyncError != nullptr;
    out.version = 0;  // it does not tell
    return out;
  }

  Status make_id(CclId &out) override {
    hccl::RootInfo id;
    DICOMM_TRY(library_->failure(library_->call.GetRootInfo(&id), "GetRootInfo"));
    out.resize(sizeof id);
    std::memcpy(out.data(), &id, sizeof id);
    return {};
  }

  Status join(const CclId &id, int rank, int size, Device &device, int64_t timeout_ns,
              std::unique_ptr<CclGroup> &out) override {
    hccl::RootInfo theirs;
    if (id.size() != sizeof theirs)
      return Status::make(DICOMM_INVALID_ARGUMENT, "an id of ", describe(), " has ", sizeof theirs,
                          " bytes, this one has ", id.size());
    if (size < 1 || rank < 0 || rank >= size)
      return Status::make(DICOMM_INVALID_ARGUMENT, "rank ", rank, " of ", size);
    if (std::strcmp(vendor(), device.vendor()) != 0)
      return Status::make(DICOMM_INVALID_ARGUMENT, describe(), " serves chips of '", vendor(), "', not '",
                          device.vendor(), "'");
    std::memcpy(&theirs, id.data(), sizeof theirs);
    return hccl::Group::join(library_, theirs, rank, size, device, timeout_ns, out);
  }

 private:
  const std::shared_ptr<const hccl::Library> library_;
};

}  // namespace

Status open_hccl(const std::vector<std::string> &files, std::unique_ptr<Ccl> &out) {
  std::shared_ptr<const hccl::Library> library;
  DICOMM_TRY(hccl::Library::open(files, library));
  out = std::make_unique<HcclCcl>(std::move(library));
  return {};
}

}  // namespace dicomm
