#include "device/cuda/runtime.h"

#include <utility>

namespace dicomm {

namespace {

// Where versions stand side by side the newest comes first.
const std::vector<CudaMember> &members() {
  static const std::vector<CudaMember> rows = {
      {"nvidia",
       "cuda",
       {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so"},
       "It comes with the CUDA toolkit, with torch, or with `pip install nvidia-cuda-runtime-cu12` (the "
       "folder "
       "of libcudart.so must be where the loader looks, as in LD_LIBRARY_PATH)",
       "cuda",
       "HostAlloc",
       "FreeHost",
       "libcuda.so.1",
       "cuDeviceGetName"},
      {"amd",
       "hip",
       {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so",
        "/opt/rocm/lib/libamdhip64.so"},
       "It comes with ROCm, or with torch for ROCm",
       "hip",
       "HostMalloc",
       "HostFree",
       "",
       "hipDeviceGetName",
       60000000},
      {"hygon",
       "hip",
       {"libgalaxyhip.so.5", "libgalaxyhip.so", "libamdhip64.so", "/opt/dtk/lib/libgalaxyhip.so",
        "/opt/dtk/hip/lib/libgalaxyhip.so"},
       "It comes with Hygon's DTK",
       "hip",
       "HostMalloc",
       "HostFree",
       "",
       "hipDeviceGetName",
       60000000},
      {"mthreads",
       "musa",
       {"libmusart.so", "/usr/local/musa/lib/libmusart.so"},
       "It comes with Moore Threads' MUSA toolkit",
       "musa",
       "HostAlloc",
       "FreeHost",
       "libmusa.so",
       "muDeviceGetName"},
      {"iluvatar",
       "corex",
       {"/usr/local/corex/lib64/libcudart.so", "/usr/local/corex/lib/libcudart.so"},
       "It comes with Iluvatar's CoreX",
       "cuda",
       "HostAlloc",
       "FreeHost",
       "",
       ""},
      {"metax",
       "maca",
       {"libmcruntime.so", "/opt/maca/lib/libmcruntime.so"},
       "It comes with MetaX's MACA",
       "mc",
       "MallocHost",
       "FreeHost",
       "",
       "mcDeviceGetName"},
  };
  return rows;
}

dicomm_status status_of(int code) {
  switch (code) {
    case kCudaMemoryAllocation:
      return DICOMM_NO_MEMORY;
    case kCudaInvalidValue:
    case kCudaInvalidDevice:
      return DICOMM_INVALID_ARGUMENT;
    case kCudaInsufficientDriver:
    case kCudaNoDevice:
    case kCudaNotSupported:
      return DICOMM_NOT_SUPPORTED;
    default:
      return DICOMM_DEVICE_FAILED;
  }
}

}  // namespace

const CudaMember *find_cuda_member(std::string_view vendor) {
  for (const CudaMember &member : members())
    if (member.vendor == vendor) return &member;
  return nullptr;
}

std::vector<std::string> cuda_vendors() {
  std::vector<std::string> names;
  for (const CudaMember &member : members()) names.push_back(member.vendor);
  return names;
}

Status CudaRuntime::open(const CudaMember &member, std::shared_ptr<const CudaRuntime> &out) {
  std::shared_ptr<CudaRuntime> made(new CudaRuntime(member));
  DICOMM_TRY(
      made->library_.open(concat("the run time of ", member.vendor, " chips"), member.files, member.how));
  DICOMM_TRY(made->find_functions());
  DICOMM_TRY(made->check(made->RuntimeGetVersion(&made->version_), "RuntimeGetVersion"));
  out = std::move(made);
  return {};
}

template <class Function>
Status CudaRuntime::find(const std::string &symbol, Function *&out) const {
  out = reinterpret_cast<Function *>(library_.find(symbol));
  if (out != nullptr) return {};
  return Status::make(DICOMM_NOT_SUPPORTED, library_.file(), " has no function ", symbol,
                      "; a newer version may have it. ", member_.how);
}

Status CudaRuntime::find_functions() {
#define DICOMM_CUDA_FIND(name, ...) DICOMM_TRY(find(member_.prefix + #name, name));
  DICOMM_CUDA_FUNCTIONS(DICOMM_CUDA_FIND)
#undef DICOMM_CUDA_FIND
  DICOMM_TRY(find(member_.prefix + member_.host_alloc, HostAlloc));
  DICOMM_TRY(find(member_.prefix + member_.host_free, FreeHost));
  const bool driver = !member_.driver.empty() && driver_.open("driver", {member_.driver}, "").ok();
  const auto optional = [&](const std::string &symbol, auto *&pointer) {
    void *found = symbol.empty() ? nullptr : driver ? driver_.find(symbol) : library_.find(symbol);
    pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(found);
  };
  optional(member_.device_name, DeviceGetName);
  if (driver && member_.prefix == "cuda") {
    optional("cuDeviceGetAttribute", DeviceGetAttribute);
    optional("cuMemGetHandleForAddressRange", MemGetHandleForAddressRange);
    optional("cuPointerGetAttribute", PointerGetAttribute);
    optional("cuFlushGPUDirectRDMAWrites", FlushGPUDirectRDMAWrites);
  }
  return {};
}

Status CudaRuntime::check(int code, const char *what) const {
  if (code == kCudaSuccess) return {};
  GetLastError();
  Failure failure;
  failure.code = status_of(code);
  failure.text = concat(member_.prefix, what, ": ", GetErrorString(code), ", ", GetErrorName(code));
  failure.foreign_domain = member_.name;
  failure.foreign_code = code;
  return Status(std::move(failure));
}

bool CudaRuntime::on_device(int memory_type) const {
  const bool early = version_ < member_.renumbered;
  return memory_type == (early ? 1 : kCudaMemoryDevice) || memory_type == (early ? 4 : kCudaMemoryManaged);
}

std::string CudaRuntime::describe() const { return concat(library_.file(), ", version ", version_); }

}  // namespace dicomm
