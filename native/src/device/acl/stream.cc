#include "device/acl/stream.h"

namespace dicomm {

namespace {

class AclEvent final : public Event {
 public:
  AclEvent(std::shared_ptr<AclChip> chip, void *event) : chip_(std::move(chip)), event_(event) {}
  ~AclEvent() override {
    std::lock_guard lock(chip_->mutex);
    chip_->retired.push_back(event_);
  }
  Status query(bool &done) override {
    const AclCurrent current(*chip_);
    int status = 0;
    const int code = chip_->api->aclrtQueryEventStatus(event_, &status);
    done = code != kAclSuccess || status == kAclEventComplete;
    return chip_->api->check(code, "aclrtQueryEventStatus");
  }
  void *handle() const { return event_; }

 private:
  const std::shared_ptr<AclChip> chip_;
  void *const event_;
};

Status no_kernels() {
  return Status::make(DICOMM_NOT_SUPPORTED, "dicomm brings no kernels for chips of ascend");
}

constexpr int32_t kForEver = -1;

}  // namespace

AclStream::~AclStream() {
  const AclCurrent current(*chip_);
  const AclRuntime &api = *chip_->api;
  {
    std::lock_guard lock(chip_->mutex);
    if (owned_) chip_->streams.erase(stream_);
    chip_->streams.erase(notices_);
    if (chip_->left_behind) return;
  }
  const auto end = [&](void *stream) {
    (void)api.check(api.aclrtSynchronizeStreamWithTimeout(stream, kForEver), "aclrtSynchronizeStream");
    if (stream == notices_) chip_->reporter->unsubscribe(stream);
    (void)api.check(api.aclrtDestroyStream(stream), "aclrtDestroyStream");
  };
  if (notices_ != nullptr) end(notices_);
  if (owned_) end(stream_);
}

Status AclStream::copy(void *dst, const void *src, size_t bytes, int kind) {
  if (bytes == 0) return {};
  const AclCurrent current(*chip_);
  DICOMM_TRY(current.status());
  return chip_->api->check(chip_->api->aclrtMemcpyAsync(dst, bytes, src, bytes, kind, stream_),
                           "aclrtMemcpyAsync");
}

Status AclStream::copy_to_host(void *host, const void *device, size_t bytes) {
  return copy(host, device, bytes, kAclDeviceToHost);
}

Status AclStream::copy_to_device(void *device, const void *host, size_t bytes) {
  return copy(device, host, bytes, kAclHostToDevice);
}

Status AclStream::copy_on_device(void *dst, const void *src, size_t bytes) {
  return copy(dst, src, bytes, kAclDeviceToDevice);
}

Status AclStream::reduce(const Arithmetic &, void *, Form, const void *, Form, const void *, Form, uint64_t,
                         bool) {
  return no_kernels();
}

Status AclStream::copy_convert(const Arithmetic &, void *, Form, const void *, Form, uint64_t, bool) {
  return no_kernels();
}

Status AclStream::record(std::unique_ptr<Event> &out) {
  chip_->sweep();
  const AclCurrent current(*chip_);
  DICOMM_TRY(current.status());
  const AclRuntime &api = *chip_->api;
  void *event = nullptr;
  DICOMM_TRY(api.check(api.aclrtCreateEventExWithFlag(&event, kAclEventSync | kAclEventProgress),
                       "aclrtCreateEventExWithFlag"));
  const Status recorded = api.check(api.aclrtRecordEvent(event, stream_), "aclrtRecordEvent");
  if (!recorded.ok()) {
    (void)api.check(api.aclrtDestroyEvent(event), "aclrtDestroyEvent");
    return recorded;
  }
  out = std::make_unique<AclEvent>(chip_, event);
  return {};
}

Status AclStream::wait(const Event &event) {
  const auto *ours = dynamic_cast<const AclEvent *>(&event);
  if (ours == nullptr) return Status::make(DICOMM_INVALID_ARGUMENT, "the event is of another kind of chip");
  const AclCurrent current(*chip_);
  DICOMM_TRY(current.status());
  return chip_->api->check(chip_->api->aclrtStreamWaitEvent(stream_, ours->handle()), "aclrtStreamWaitEvent");
}

Status AclStream::notify(void (*fn)(void *arg), void *arg) {
  std::unique_ptr<Event> event;
  DICOMM_TRY(record(event));
  const AclCurrent current(*chip_);
  DICOMM_TRY(current.status());
  const AclRuntime &api = *chip_->api;
  std::lock_guard lock(mutex_);
  if (notices_ == nullptr) DICOMM_TRY(follow());
  DICOMM_TRY(api.check(api.aclrtStreamWaitEvent(notices_, static_cast<const AclEvent &>(*event).handle()),
                       "aclrtStreamWaitEvent"));
  return api.check(api.aclrtLaunchCallback(fn, arg, kAclCallbackBlock, notices_), "aclrtLaunchCallback");
}

Status AclStream::follow() {
  const AclRuntime &api = *chip_->api;
  void *made = nullptr;
  DICOMM_TRY(api.check(api.aclrtCreateStream(&made), "aclrtCreateStream"));
  const Status subscribed = chip_->reporter->subscribe(made);
  if (!subscribed.ok()) {
    (void)api.check(api.aclrtDestroyStream(made), "aclrtDestroyStream");
    return subscribed;
  }
  std::lock_guard lock(chip_->mutex);
  chip_->streams.insert(made);
  notices_ = made;
  return {};
}

}  // namespace dicomm
