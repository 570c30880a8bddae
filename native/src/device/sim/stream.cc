#include "device/sim/stream.h"

#include <cstring>

namespace dicomm {

namespace {

// Shared by an event, the work before it that completes it, and the streams that wait for it.
struct Point {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  Status failed;

  void reach(const Status &status) {
    std::lock_guard lock(mutex);
    done = true;
    failed = status;
    changed.notify_all();
  }
};

class SimEvent final : public Event {
 public:
  explicit SimEvent(std::shared_ptr<Point> point) : point_(std::move(point)) {}
  Status query(bool &done) override {
    std::lock_guard lock(point_->mutex);
    done = point_->done;
    return point_->failed;
  }
  const std::shared_ptr<Point> &point() const { return point_; }

 private:
  std::shared_ptr<Point> point_;
};

}  // namespace

SimStream::~SimStream() {
  if (owned_) queue_->drain(kNever);
}

Status SimStream::copy(void *dst, const void *src, size_t bytes, Nanos SimChip::*engine) {
  return queue_->enqueue([=, chip = chip_](Nanos begun, Nanos &until) -> Status {
    DICOMM_TRY(chip->work_once());
    if (bytes > 0) std::memmove(dst, src, bytes);
    if (engine != nullptr) until = chip->book(*chip.*engine, begun, bytes);
    return {};
  });
}

Status SimStream::copy_to_host(void *host, const void *device, size_t bytes) {
  return copy(host, device, bytes, &SimChip::to_host_free);
}

Status SimStream::copy_to_device(void *device, const void *host, size_t bytes) {
  return copy(device, host, bytes, &SimChip::to_device_free);
}

Status SimStream::copy_on_device(void *dst, const void *src, size_t bytes) {
  return copy(dst, src, bytes, nullptr);
}

Status SimStream::reduce(const Arithmetic &arithmetic, void *dst, Form dst_form, const void *a, Form a_form,
                         const void *b, Form b_form, uint64_t count, bool finish) {
  return queue_->enqueue([=, chip = chip_](Nanos, Nanos &) -> Status {
    DICOMM_TRY(chip->work_once());
    reduce_elements(arithmetic, dst, dst_form, a, a_form, b, b_form, count, finish);
    return {};
  });
}

Status SimStream::copy_convert(const Arithmetic &arithmetic, void *dst, Form dst_form, const void *a,
                               Form a_form, uint64_t count, bool finish) {
  return queue_->enqueue([=, chip = chip_](Nanos, Nanos &) -> Status {
    DICOMM_TRY(chip->work_once());
    copy_elements(arithmetic, dst, dst_form, a, a_form, count, finish);
    return {};
  });
}

Status SimStream::record(std::unique_ptr<Event> &out) {
  DICOMM_TRY(chip_->health->status());
  auto point = std::make_shared<Point>();
  out = std::make_unique<SimEvent>(point);
  if (queue_->idle()) {
    point->reach({});
  } else {
    queue_->mark([point](const Status &status) { point->reach(status); });
  }
  return {};
}

Status SimStream::wait(const Event &event) {
  const auto *ours = dynamic_cast<const SimEvent *>(&event);
  if (ours == nullptr) return Status::make(DICOMM_INVALID_ARGUMENT, "the event is of another kind of chip");
  {
    std::lock_guard lock(ours->point()->mutex);
    if (ours->point()->done) return chip_->health->status();
  }
  return queue_->enqueue([point = ours->point()](Nanos, Nanos &) -> Status {
    std::unique_lock lock(point->mutex);
    point->changed.wait(lock, [&] { return point->done; });
    return {};
  });
}

Status SimStream::notify(void (*fn)(void *arg), void *arg) {
  DICOMM_TRY(chip_->health->status());
  queue_->mark([fn, arg](const Status &) { fn(arg); });
  return {};
}

}  // namespace dicomm
