#include "ccl/nccl/nccl.h"

#include <cstring>

#include "ccl/nccl/group.h"

namespace dicomm {

namespace {

class NcclCcl final : public Ccl {
 public:
  explicit NcclCcl(std::shared_ptr<const nccl::Library> library) : library_(std::move(library)) {}

  const char *name() const override { return library_->member.name.c_str(); }
  const char *vendor() const override { return library_->member.vendor.c_str(); }
  std::string describe() const override { return library_->describe(); }

  CclCapabilities capabilities() const override {
    const nccl::Functions &call = library_->call;
    CclCapabilities out;
    out.reduces = [library = library_](dicomm_dtype dtype, dicomm_reduce op) {
      const bool made =
          library->call.RedOpCreatePreMulSum != nullptr && library->call.RedOpDestroy != nullptr;
      return nccl::reducing(library->member, library->version, dtype, op) &&
             (op != DICOMM_PREMUL_SUM || made);
    };
    out.moves = [](dicomm_dtype dtype) { return dicomm_dtype_size(dtype) > 0; };
    out.send_recv = call.Send != nullptr && call.Recv != nullptr;
    out.aborts = call.CommAbort != nullptr;
    out.tells_errors = call.CommGetAsyncError != nullptr;
    out.version = library_->version;
    return out;
  }

  Status make_id(CclId &out) override {
    nccl::UniqueId id;
    DICOMM_TRY(library_->failure(library_->call.GetUniqueId(&id), "GetUniqueId"));
    out.resize(sizeof id);
    std::memcpy(out.data(), &id, sizeof id);
    return {};
  }

  Status join(const CclId &id, int rank, int size, Device &device, int64_t timeout_ns,
              std::unique_ptr<CclGroup> &out) override {
    nccl::UniqueId theirs;
    if (id.size() != sizeof theirs)
      return Status::make(DICOMM_INVALID_ARGUMENT, "an id of ", library_->describe(), " has ", sizeof theirs,
                          " bytes, this one has ", id.size());
    if (size < 1 || rank < 0 || rank >= size)
      return Status::make(DICOMM_INVALID_ARGUMENT, "rank ", rank, " of ", size);
    if (library_->member.vendor != device.vendor())
      return Status::make(DICOMM_INVALID_ARGUMENT, library_->describe(), " serves chips of '", vendor(),
                          "', not '", device.vendor(), "'");
    std::memcpy(&theirs, id.data(), sizeof theirs);
    return nccl::Group::join(library_, theirs, rank, size, device, timeout_ns, out);
  }

 private:
  const std::shared_ptr<const nccl::Library> library_;
};

}  // namespace

Status open_nccl(const nccl::Member &member, std::unique_ptr<Ccl> &out) {
  std::shared_ptr<const nccl::Library> library;
  DICOMM_TRY(nccl::Library::open(member, library));
  out = std::make_unique<NcclCcl>(std::move(library));
  return {};
}

}  // namespace dicomm
