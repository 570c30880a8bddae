// Our declarations of CUDA's run time and driver against their own headers, where this machine has them.

#include <doctest/doctest.h>

#include "device/cuda/runtime.h"
#include "signatures.h"

#if __has_include(<cuda_runtime_api.h>) && __has_include(<cuda.h>)
#include <cuda.h>
#include <cuda_runtime_api.h>
#define DICOMM_CUDA_HEADER 1
#endif

namespace dicomm::test {

namespace {

#ifdef DICOMM_CUDA_HEADER

#define DICOMM_CUDA_SAME(name, ...) \
  static_assert(same<std::add_pointer_t<__VA_ARGS__>, decltype(&cuda##name)>, #name);
DICOMM_CUDA_FUNCTIONS(DICOMM_CUDA_SAME)
#undef DICOMM_CUDA_SAME
static_assert(same<decltype(CudaRuntime::HostAlloc), decltype(&cudaHostAlloc)>);
static_assert(same<decltype(CudaRuntime::FreeHost), decltype(&cudaFreeHost)>);
static_assert(same<decltype(CudaRuntime::DeviceGetName), decltype(&cuDeviceGetName)>);
static_assert(same<decltype(CudaRuntime::DeviceGetAttribute), decltype(&cuDeviceGetAttribute)>);
static_assert(
    same<decltype(CudaRuntime::MemGetHandleForAddressRange), decltype(&cuMemGetHandleForAddressRange)>);
static_assert(same<decltype(CudaRuntime::PointerGetAttribute), decltype(&cuPointerGetAttribute)>);
static_assert(same<decltype(CudaRuntime::FlushGPUDirectRDMAWrites), decltype(&cuFlushGPUDirectRDMAWrites)>);

static_assert(kCudaSuccess == int{cudaSuccess});
static_assert(kCudaInvalidValue == int{cudaErrorInvalidValue});
static_assert(kCudaMemoryAllocation == int{cudaErrorMemoryAllocation});
static_assert(kCudaInsufficientDriver == int{cudaErrorInsufficientDriver});
static_assert(kCudaNoDevice == int{cudaErrorNoDevice});
static_assert(kCudaInvalidDevice == int{cudaErrorInvalidDevice});
static_assert(kCudaNotReady == int{cudaErrorNotReady});
static_assert(kCudaNotSupported == int{cudaErrorNotSupported});
static_assert(kCudaHostToDevice == int{cudaMemcpyHostToDevice});
static_assert(kCudaDeviceToHost == int{cudaMemcpyDeviceToHost});
static_assert(kCudaDeviceToDevice == int{cudaMemcpyDeviceToDevice});
static_assert(kCudaStreamNonBlocking == int{cudaStreamNonBlocking});
static_assert(kCudaEventDisableTiming == int{cudaEventDisableTiming});
static_assert(kCudaHostAllocPortable == int{cudaHostAllocPortable});
static_assert(kCudaMemoryDevice == int{cudaMemoryTypeDevice});
static_assert(kCudaMemoryManaged == int{cudaMemoryTypeManaged});
static_assert(int{CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED} == 124);
static_assert(int{CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD} == 1);
static_assert(int{CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS} == 117);
static_assert(int{CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST} == 1);
static_assert(int{CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING} == 118);
static_assert(int{CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER} == 100);
static_assert(int{CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX} == 0);
static_assert(int{CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER} == 100);
static_assert(int{CU_POINTER_ATTRIBUTE_BUFFER_ID} == 7);

static_assert(offsetof(CudaPointerAttributes, type) == offsetof(cudaPointerAttributes, type));
static_assert(offsetof(CudaPointerAttributes, device) == offsetof(cudaPointerAttributes, device));
static_assert(offsetof(CudaPointerAttributes, host_pointer) == offsetof(cudaPointerAttributes, hostPointer));
static_assert(sizeof(CudaPointerAttributes) >= sizeof(cudaPointerAttributes));

#endif

TEST_CASE("CUDA is declared as in its own headers") {
#ifdef DICOMM_CUDA_HEADER
  CHECK(CUDART_VERSION >= 11000);  // the comparison itself was made by the compiler
#else
  MESSAGE("skipped: this machine has no cuda_runtime_api.h and cuda.h");
#endif
}

}  // namespace

}  // namespace dicomm::test
