#include "ccl/mpi/mpi.h"

#include <cstring>

#include "ccl/mpi/group.h"

namespace dicomm {

namespace {

class MpiCcl final : public Ccl {
 public:
  explicit MpiCcl(std::shared_ptr<mpi::Library> library) : library_(std::move(library)) {}

  const char *name() const override { return "mpi"; }
  const char *vendor() const override { return "cpu"; }
  std::string describe() const override { return library_->describe(); }

  CclCapabilities capabilities() const override {
    CclCapabilities out;
    out.reduces = [library = library_](dicomm_dtype dtype, dicomm_reduce op) {
      return library->reducing(dtype, op).has_value();
    };
    out.moves = [](dicomm_dtype dtype) { return dicomm_dtype_size(dtype) > 0; };
    out.send_recv = true;
    out.aborts = true;
    out.tells_errors = false;
    out.version = library_->version;
    return out;
  }

  Status make_id(CclId &out) override {
    const mpi::Id id = mpi::Id::make(*library_);
    out.resize(sizeof id);
    std::memcpy(out.data(), &id, sizeof id);
    return {};
  }

  Status join(const CclId &id, int rank, int size, Device &device, int64_t timeout_ns,
              std::unique_ptr<CclGroup> &out) override {
    mpi::Id theirs{};
    if (id.size() == sizeof theirs) std::memcpy(&theirs, id.data(), sizeof theirs);
    if (!theirs.valid()) return Status::make(DICOMM_INVALID_ARGUMENT, "not an id of ", describe());
    if (size < 1 || rank < 0 || rank >= size)
      return Status::make(DICOMM_INVALID_ARGUMENT, "rank ", rank, " of ", size);
    if (std::strcmp(vendor(), device.vendor()) != 0)
      return Status::make(DICOMM_INVALID_ARGUMENT, describe(),
                          " serves the host's processors, not chips of '", device.vendor(), "'");
    const mpi::Library &mine = *library_;
    if (theirs.world_size != mine.world_size || size > mine.world_size)
      return Status::make(DICOMM_INVALID_ARGUMENT, "the island has ", size, " ranks, MPI_COMM_WORLD ",
                          mine.world_size, " processes here and ", theirs.world_size,
                          " at its first rank: start all of them with one mpirun, or give each MPI job an "
                          "island word of its own (DICOMM_ISLAND)");
    return mpi::Group::join(library_, theirs, rank, size, device, timeout_ns, out);
  }

 private:
  const std::shared_ptr<mpi::Library> library_;
};

}  // namespace

Status open_mpi(std::unique_ptr<Ccl> &out) {
  std::shared_ptr<mpi::Library> library;
  DICOMM_TRY(mpi::Library::open(library));
  out = std::make_unique<MpiCcl>(std::move(library));
  return {};
}

}  // namespace dicomm
