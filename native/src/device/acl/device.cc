#include "device/acl/device.h"

#include <algorithm>

#include "base/clock.h"
#include "device/acl/stream.h"

namespace dicomm {

namespace {

class AclAllocation final : public Allocation {
 public:
  AclAllocation(std::shared_ptr<AclChip> chip, void *data, size_t size, bool pinned)
      : chip_(std::move(chip)), data_(data), size_(size), pinned_(pinned) {}
  ~AclAllocation() override {
    const AclCurrent current(*chip_);
    // Nobody is left to tell of a failure.
    const int code = pinned_ ? chip_->api->aclrtFreeHost(data_) : chip_->api->aclrtFree(data_);
    (void)chip_->api->check(code, "aclrtFree");
  }
  void *data() const override { return data_; }
  size_t size() const override { return size_; }

 private:
  const std::shared_ptr<AclChip> chip_;
  void *const data_;
  const size_t size_;
  const bool pinned_;
};

}  // namespace

AclCurrent::AclCurrent(const AclChip &chip) : api_(*chip.api) {
  void *before = nullptr;
  if (api_.aclrtGetCurrentContext(&before) != kAclSuccess) before = nullptr;
  if (before == chip.context) return;
  status_ = api_.check(api_.aclrtSetCurrentContext(chip.context), "aclrtSetCurrentContext");
  if (status_.ok()) before_ = before;
}

AclCurrent::~AclCurrent() {
  if (before_ != nullptr) (void)api_.check(api_.aclrtSetCurrentContext(before_), "aclrtSetCurrentContext");
}

AclChip::~AclChip() {
  if (!left_behind) sweep();
}

void AclChip::sweep() {
  const AclCurrent current(*this);
  std::lock_guard lock(mutex);
  std::erase_if(retired, [&](void *event) {
    int recorded = kAclEventComplete, waited = kAclEventWaitComplete;
    // One that cannot be asked has failed, and nothing waits for it.
    (void)api->check(api->aclrtQueryEventStatus(event, &recorded), "aclrtQueryEventStatus");
    (void)api->check(api->aclrtQueryEventWaitStatus(event, &waited), "aclrtQueryEventWaitStatus");
    if (recorded != kAclEventComplete || waited != kAclEventWaitComplete) return false;
    (void)api->check(api->aclrtDestroyEvent(event), "aclrtDestroyEvent");
    return true;
  });
}

Status AclDevice::open(const std::vector<std::string> &files, int index, std::unique_ptr<Device> &out) {
  std::shared_ptr<const AclRuntime> api;
  DICOMM_TRY(AclRuntime::open(files, api));
  uint32_t count = 0;
  DICOMM_TRY(api->check(api->aclrtGetDeviceCount(&count), "aclrtGetDeviceCount"));
  if (index < 0 || static_cast<uint32_t>(index) >= count)
    return Status::make(DICOMM_INVALID_ARGUMENT, "there is no chip ", index, " of ascend: this process sees ",
                        count);
  auto chip = std::make_shared<AclChip>(api, index);
  void *before = nullptr;
  if (api->aclrtGetCurrentContext(&before) != kAclSuccess) before = nullptr;
  DICOMM_TRY(api->check(api->aclrtSetDevice(index), "aclrtSetDevice"));
  const Status found = api->check(api->aclrtGetCurrentContext(&chip->context), "aclrtGetCurrentContext");
  if (before != nullptr)
    DICOMM_TRY(api->check(api->aclrtSetCurrentContext(before), "aclrtSetCurrentContext"));
  DICOMM_TRY(found);
  chip->reporter = std::make_unique<AclReporter>(api, chip->context);
  out.reset(new AclDevice(std::move(chip)));
  return {};
}

std::string AclDevice::describe() const {
  const AclCurrent current(*chip_);
  const AclRuntime &api = *chip_->api;
  size_t free = 0, total = 0;
  const char *name = api.aclrtGetSocName();
  const bool known = api.check(api.aclrtGetMemInfo(kAclHbmMemory, &free, &total), "aclrtGetMemInfo").ok();
  return concat(vendor(), " ", index(), ": ", name != nullptr ? name : "", known ? ", " : "",
                known ? concat(total >> 20, " MiB") : "", ", ", api.describe());
}

Status AclDevice::allocate(size_t bytes, std::unique_ptr<Allocation> &out) {
  const AclCurrent current(*chip_);
  DICOMM_TRY(current.status());
  void *data = nullptr;
  DICOMM_TRY(chip_->api->check(
      chip_->api->aclrtMalloc(&data, std::max<size_t>(bytes, 1), kAclMallocHugeFirst), "aclrtMalloc"));
  out = std::make_unique<AclAllocation>(chip_, data, bytes, false);
  return {};
}

Status AclDevice::allocate_pinned(size_t bytes, std::unique_ptr<Allocation> &out) {
  const AclCurrent current(*chip_);
  DICOMM_TRY(current.status());
  void *data = nullptr;
  DICOMM_TRY(
      chip_->api->check(chip_->api->aclrtMallocHost(&data, std::max<size_t>(bytes, 1)), "aclrtMallocHost"));
  out = std::make_unique<AclAllocation>(chip_, data, bytes, true);
  return {};
}

bool AclDevice::owns(const void *data) const {
  if (data == nullptr) return false;
  const AclCurrent current(*chip_);
  AclPointerAttributes attributes{};
  const int code = chip_->api->aclrtPointerGetAttributes(data, &attributes);
  return code == kAclSuccess && attributes.type == kAclMemoryDevice &&
         attributes.device == static_cast<uint32_t>(index());
}

Status AclDevice::with_current(const std::function<Status()> &body) {
  const AclCurrent current(*chip_);
  if (!current.status().ok()) return current.status().with([](Failure &f) { f.code = DICOMM_DEVICE_FAILED; });
  return body();
}

Status AclDevice::make_stream(std::unique_ptr<Stream> &out) {
  const AclCurrent current(*chip_);
  DICOMM_TRY(current.status());
  void *stream = nullptr;
  DICOMM_TRY(chip_->api->check(chip_->api->aclrtCreateStream(&stream), "aclrtCreateStream"));
  {
    std::lock_guard lock(chip_->mutex);
    chip_->streams.insert(stream);
  }
  out = std::make_unique<AclStream>(chip_, stream, true);
  return {};
}

Status AclDevice::wrap(void *vendor_stream, std::unique_ptr<Stream> &out) {
  out = std::make_unique<AclStream>(chip_, vendor_stream, false);
  return {};
}

Status AclDevice::export_dmabuf(const void *, size_t, DmaBuf &) {
  return Status::make(DICOMM_NOT_SUPPORTED, "CANN has no function that exports memory as a file descriptor");
}

Status AclDevice::close(int64_t timeout_ns) {
  const Nanos deadline = timeout_ns == DICOMM_TIMEOUT_NEVER ? kNever : deadline_after(timeout_ns);
  const AclCurrent current(*chip_);
  {
    std::lock_guard lock(chip_->mutex);
    for (void *stream : chip_->streams) {
      const Nanos left = std::max<Nanos>(deadline - now(), 0) / kMillisecond + 1;
      const int code = chip_->api->aclrtSynchronizeStreamWithTimeout(
          stream, deadline == kNever ? -1 : static_cast<int32_t>(std::min<Nanos>(left, INT32_MAX)));
      (void)chip_->api->check(code, "aclrtSynchronizeStreamWithTimeout");  // work that has failed has ended
      chip_->left_behind = chip_->left_behind || code == kAclRtStreamSyncTimeout;
    }
  }
  chip_->sweep();
  if (!chip_->left_behind) return {};
  return Status::make(DICOMM_TIMED_OUT, "ascend ", index(), ": work enqueued on it did not end in time");
}

}  // namespace dicomm
