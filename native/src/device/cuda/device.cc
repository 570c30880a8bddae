#include "device/cuda/device.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>

#include "base/clock.h"
#include "device/cuda/stream.h"

namespace dicomm {

namespace {

// Of the driver, in cuda.h.
constexpr int kDmaBufSupported = 124;
constexpr int kHandleDmaBuf = 1;
constexpr int kFlushOptions = 117, kFlushByHost = 1;
constexpr int kWritesOrdering = 118, kOrderedForOwner = 100;
constexpr int kBufferId = 7;

class CudaAllocation final : public Allocation {
 public:
  CudaAllocation(std::shared_ptr<CudaChip> chip, void *data, size_t size, bool pinned)
      : chip_(std::move(chip)), data_(data), size_(size), pinned_(pinned) {}
  ~CudaAllocation() override {
    // Both find the memory's chip themselves, and wait for work on it. Nobody is left to tell of a failure.
    const int code = pinned_ ? chip_->api->FreeHost(data_) : chip_->api->Free(data_);
    (void)chip_->api->check(code, "Free");
  }
  void *data() const override { return data_; }
  size_t size() const override { return size_; }

 private:
  const std::shared_ptr<CudaChip> chip_;
  void *const data_;
  const size_t size_;
  const bool pinned_;
};

Status of_driver(int code, std::string text) {
  Failure failure;
  failure.code = DICOMM_DEVICE_FAILED;
  failure.text = std::move(text);
  failure.foreign_domain = "cuda driver";
  failure.foreign_code = code;
  return Status(std::move(failure));
}

}  // namespace

CudaCurrent::CudaCurrent(const CudaChip &chip) : api_(*chip.api) {
  int before = -1;
  status_ = api_.check(api_.GetDevice(&before), "GetDevice");
  if (!status_.ok() || before == chip.index) return;
  status_ = api_.check(api_.SetDevice(chip.index), "SetDevice");
  if (status_.ok()) before_ = before;
}

CudaCurrent::~CudaCurrent() {
  if (before_ >= 0) (void)api_.check(api_.SetDevice(before_), "SetDevice");
}

Status CudaDevice::open(const CudaMember &member, int index, std::unique_ptr<Device> &out) {
  std::shared_ptr<const CudaRuntime> api;
  DICOMM_TRY(CudaRuntime::open(member, api));
  int count = 0;
  DICOMM_TRY(api->check(api->GetDeviceCount(&count), "GetDeviceCount"));
  if (index < 0 || index >= count)
    return Status::make(DICOMM_INVALID_ARGUMENT, "there is no chip ", index, " of ", member.vendor,
                        ": this process sees ", count);
  auto chip = std::make_shared<CudaChip>(api, index);
  std::unique_ptr<CudaDevice> made(new CudaDevice(chip));
  const CudaCurrent current(*chip);  // makes the chip's context, where that has not been done
  DICOMM_TRY(current.status());
  made->exports_dmabuf_ =
      api->MemGetHandleForAddressRange != nullptr && made->attribute(kDmaBufSupported) != 0;
  made->ordered_ = made->attribute(kWritesOrdering) >= kOrderedForOwner;
  made->flushes_card_writes_ = !made->ordered_ && api->FlushGPUDirectRDMAWrites != nullptr &&
                               (made->attribute(kFlushOptions) & kFlushByHost) != 0;
  out = std::move(made);
  return {};
}

int CudaDevice::attribute(int which) const {
  const CudaRuntime &api = *chip_->api;
  int value = 0;
  if (api.DeviceGetAttribute == nullptr) return 0;
  return api.DeviceGetAttribute(&value, which, chip_->index) == kCudaSuccess ? value : 0;
}

std::string CudaDevice::describe() const {
  const CudaRuntime &api = *chip_->api;
  const CudaCurrent current(*chip_);
  std::array<char, 128> name{};
  const std::string bus = bus_address();
  size_t free = 0, total = 0;
  if (api.DeviceGetName != nullptr) api.DeviceGetName(name.data(), name.size() - 1, chip_->index);
  const bool known = !bus.empty() && api.check(api.MemGetInfo(&free, &total), "").ok();
  return concat(vendor(), " ", chip_->index, ": ", name.data(), name[0] != 0 ? ", " : "",
                known ? concat("PCI ", bus, ", ", total >> 20, " MiB, ") : "", api.describe());
}

std::string CudaDevice::bus_address() const {
  const CudaRuntime &api = *chip_->api;
  std::array<char, 128> text{};
  const int code = api.DeviceGetPCIBusId(text.data(), text.size() - 1, chip_->index);
  return api.check(code, "DeviceGetPCIBusId").ok() ? text.data() : "";
}

Status CudaDevice::allocate(size_t bytes, std::unique_ptr<Allocation> &out) {
  const CudaCurrent current(*chip_);
  DICOMM_TRY(current.status());
  void *data = nullptr;
  DICOMM_TRY(chip_->api->check(chip_->api->Malloc(&data, std::max<size_t>(bytes, 1)), "Malloc"));
  out = std::make_unique<CudaAllocation>(chip_, data, bytes, false);
  return {};
}

Status CudaDevice::allocate_pinned(size_t bytes, std::unique_ptr<Allocation> &out) {
  const CudaCurrent current(*chip_);
  DICOMM_TRY(current.status());
  void *data = nullptr;
  DICOMM_TRY(chip_->api->check(
      chip_->api->HostAlloc(&data, std::max<size_t>(bytes, 1), kCudaHostAllocPortable), "HostAlloc"));
  out = std::make_unique<CudaAllocation>(chip_, data, bytes, true);
  return {};
}

bool CudaDevice::owns(const void *data) const {
  if (data == nullptr) return false;
  CudaPointerAttributes attributes{};
  const int code = chip_->api->PointerGetAttributes(&attributes, data);
  // For memory it does not know one says so, another returns an error.
  if (!chip_->api->check(code, "PointerGetAttributes").ok()) return false;
  return chip_->api->on_device(attributes.type) && attributes.device == chip_->index;
}

Status CudaDevice::with_current(const std::function<Status()> &body) {
  const CudaCurrent current(*chip_);
  if (!current.status().ok()) return current.status().with([](Failure &f) { f.code = DICOMM_DEVICE_FAILED; });
  return body();
}

Status CudaDevice::make_stream(std::unique_ptr<Stream> &out) {
  const CudaCurrent current(*chip_);
  DICOMM_TRY(current.status());
  void *stream = nullptr;
  DICOMM_TRY(chip_->api->check(chip_->api->StreamCreateWithFlags(&stream, kCudaStreamNonBlocking),
                               "StreamCreateWithFlags"));
  {
    std::lock_guard lock(chip_->mutex);
    chip_->streams.insert(stream);
  }
  out = std::make_unique<CudaStream>(chip_, stream, true);
  return {};
}

Status CudaDevice::wrap(void *vendor_stream, std::unique_ptr<Stream> &out) {
  out = std::make_unique<CudaStream>(chip_, vendor_stream, false);
  return {};
}

Status CudaDevice::export_dmabuf(const void *data, size_t bytes, DmaBuf &out) {
  if (!exports_dmabuf_)
    return Status::make(DICOMM_NOT_SUPPORTED, "the driver cannot export memory of ", describe());
  const CudaCurrent current(*chip_);
  DICOMM_TRY(current.status());
  // Whole pages.
  const auto page = static_cast<unsigned long long>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<unsigned long long>(data);
  const unsigned long long from = begin / page * page;
  const unsigned long long to = (begin + bytes + page - 1) / page * page;
  int fd = -1;
  const int code = chip_->api->MemGetHandleForAddressRange(&fd, from, to - from, kHandleDmaBuf, 0);
  if (code != kCudaSuccess)
    return of_driver(code, concat("cuMemGetHandleForAddressRange of ", bytes, " bytes on ", describe()));
  out.fd = fd;
  out.offset = begin - from;
  return {};
}

uint64_t CudaDevice::allocation_number(const void *data) const {
  unsigned long long number = 0;
  const CudaRuntime &api = *chip_->api;
  if (api.PointerGetAttribute == nullptr) return 0;
  const int code = api.PointerGetAttribute(&number, kBufferId, reinterpret_cast<unsigned long long>(data));
  return code == kCudaSuccess ? number : 0;
}

Status CudaDevice::see_card_writes() {
  if (!flushes_card_writes_) return {};
  const CudaCurrent current(*chip_);
  DICOMM_TRY(current.status());
  const int code = chip_->api->FlushGPUDirectRDMAWrites(0, kOrderedForOwner);
  return code == kCudaSuccess ? Status() : of_driver(code, "cuFlushGPUDirectRDMAWrites");
}

Status CudaDevice::close(int64_t timeout_ns) {
  constexpr auto kPause = std::chrono::microseconds(200);
  const Nanos deadline = timeout_ns == DICOMM_TIMEOUT_NEVER ? kNever : deadline_after(timeout_ns);
  std::lock_guard lock(chip_->mutex);
  for (void *stream : chip_->streams) {
    int code = chip_->api->StreamQuery(stream);
    while (code == kCudaNotReady && now() < deadline) {
      std::this_thread::sleep_for(kPause);
      code = chip_->api->StreamQuery(stream);
    }
    (void)chip_->api->check(code, "StreamQuery");  // work that has failed has ended, too
    chip_->left_behind = chip_->left_behind || code == kCudaNotReady;
  }
  if (!chip_->left_behind) return {};
  return Status::make(DICOMM_TIMED_OUT, vendor(), " ", index(), ": work enqueued on it did not end in time");
}

}  // namespace dicomm
