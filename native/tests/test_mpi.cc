// MPI in the suite of ccl/ccl.h. Each rank is a process: run it as
//
//   mpirun -n 3 dicomm_tests -ts=mpi --no-skip
//
// where the loader finds the MPI (LD_LIBRARY_PATH).

#include "ccl/mpi/library.h"
#include "ccl/mpi/mpi.h"
#include "ccl_suite.h"
#include "device/processor/device.h"

namespace dicomm::test {

namespace {

// The processes meet by MPI's own blocking calls.
class World {
 public:
  World() {
    REQUIRE(mpi::Library::open(library_).ok());
    const auto barrier = reinterpret_cast<int (*)(mpi::Handle)>(library_->file.find("MPI_Barrier"));
    using Bcast = int (*)(void *, int, mpi::Handle, int, mpi::Handle);
    const auto bcast = reinterpret_cast<Bcast>(library_->file.find("MPI_Bcast"));
    processes_.rank = library_->world_rank;
    processes_.meet = [this, barrier] { CHECK(barrier(library_->abi.world) == mpi::kSuccess); };
    processes_.share = [this, bcast](std::vector<std::byte> &bytes) {
      CHECK(bcast(bytes.data(), static_cast<int>(bytes.size()), library_->abi.dtypes[DICOMM_UINT8], 0,
                  library_->abi.world) == mpi::kSuccess);
    };
  }
  const suite::Processes &processes() const { return processes_; }

 private:
  std::shared_ptr<mpi::Library> library_;
  suite::Processes processes_;
};

suite::CclSetup setup() {
  return {open_mpi,
          [](int, std::unique_ptr<Device> &out) -> Status {
            out = std::make_unique<ProcessorDevice>();
            return {};
          },
          []() -> const suite::Processes & {
            static const World world;
            return world.processes();
          }};
}

TEST_SUITE_BEGIN("mpi" * doctest::skip());
DICOMM_CCL_SUITE("mpi", setup())
TEST_SUITE_END();

}  // namespace

}  // namespace dicomm::test
