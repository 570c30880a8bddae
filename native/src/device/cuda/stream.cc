#include "device/cuda/stream.h"

#include <optional>

namespace dicomm {

namespace {

class CudaEvent final : public Event {
 public:
  CudaEvent(std::shared_ptr<CudaChip> chip, void *event) : chip_(std::move(chip)), event_(event) {}
  // The run time keeps what is pending.
  ~CudaEvent() override { (void)chip_->api->check(chip_->api->EventDestroy(event_), "EventDestroy"); }
  Status query(bool &done) override {
    const int code = chip_->api->EventQuery(event_);
    done = code != kCudaNotReady;
    if (done) return chip_->api->check(code, "EventQuery");
    chip_->api->GetLastError();  // some keep even this for the next who asks
    return {};
  }
  void *handle() const { return event_; }

 private:
  const std::shared_ptr<CudaChip> chip_;
  void *const event_;
};

struct Notice {
  void (*fn)(void *arg);
  void *arg;
};

// Unlike a host function, a callback runs after a failure, too.
void deliver(void *, int, void *data) {
  const std::unique_ptr<Notice> notice(static_cast<Notice *>(data));
  notice->fn(notice->arg);
}

Status no_kernels(const CudaChip &chip) {
  return Status::make(DICOMM_NOT_SUPPORTED, "dicomm brings no kernels for chips of ",
                      chip.api->member().vendor);
}

}  // namespace

CudaStream::~CudaStream() {
  if (!owned_) return;
  {
    std::lock_guard lock(chip_->mutex);
    chip_->streams.erase(stream_);
    if (chip_->left_behind) return;
  }
  (void)chip_->api->check(chip_->api->StreamSynchronize(stream_), "StreamSynchronize");
  (void)chip_->api->check(chip_->api->StreamDestroy(stream_), "StreamDestroy");
}

template <class Call>
Status CudaStream::on_chip(const char *what, Call call) {
  std::optional<CudaCurrent> current;
  if (stream_ == nullptr) {
    current.emplace(*chip_);
    DICOMM_TRY(current->status());
  }
  return chip_->api->check(call(), what);
}

Status CudaStream::copy(void *dst, const void *src, size_t bytes, int kind) {
  if (bytes == 0) return {};
  return on_chip("MemcpyAsync", [&] { return chip_->api->MemcpyAsync(dst, src, bytes, kind, stream_); });
}

Status CudaStream::copy_to_host(void *host, const void *device, size_t bytes) {
  return copy(host, device, bytes, kCudaDeviceToHost);
}

Status CudaStream::copy_to_device(void *device, const void *host, size_t bytes) {
  return copy(device, host, bytes, kCudaHostToDevice);
}

Status CudaStream::copy_on_device(void *dst, const void *src, size_t bytes) {
  return copy(dst, src, bytes, kCudaDeviceToDevice);
}

Status CudaStream::reduce(const Arithmetic &, void *, Form, const void *, Form, const void *, Form, uint64_t,
                          bool) {
  return no_kernels(*chip_);
}

Status CudaStream::copy_convert(const Arithmetic &, void *, Form, const void *, Form, uint64_t, bool) {
  return no_kernels(*chip_);
}

Status CudaStream::record(std::unique_ptr<Event> &out) {
  const CudaCurrent current(*chip_);  // an event belongs to the current device
  DICOMM_TRY(current.status());
  void *event = nullptr;
  DICOMM_TRY(chip_->api->check(chip_->api->EventCreateWithFlags(&event, kCudaEventDisableTiming),
                               "EventCreateWithFlags"));
  auto made = std::make_unique<CudaEvent>(chip_, event);
  DICOMM_TRY(chip_->api->check(chip_->api->EventRecord(event, stream_), "EventRecord"));
  out = std::move(made);
  return {};
}

Status CudaStream::wait(const Event &event) {
  const auto *ours = dynamic_cast<const CudaEvent *>(&event);
  if (ours == nullptr) return Status::make(DICOMM_INVALID_ARGUMENT, "the event is of another kind of chip");
  return on_chip("StreamWaitEvent", [&] { return chip_->api->StreamWaitEvent(stream_, ours->handle(), 0); });
}

Status CudaStream::notify(void (*fn)(void *arg), void *arg) {
  auto notice = std::make_unique<Notice>(Notice{fn, arg});
  DICOMM_TRY(on_chip("StreamAddCallback",
                     [&] { return chip_->api->StreamAddCallback(stream_, deliver, notice.get(), 0); }));
  notice.release();  // deliver's
  return {};
}

}  // namespace dicomm
