#include "device/processor/stream.h"

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

class ProcessorEvent final : public Event {
 public:
  explicit ProcessorEvent(std::shared_ptr<Point> point) : point_(std::move(point)) {}
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

ProcessorStream::~ProcessorStream() {
  if (owned_) queue_->drain(kNever);
}

Status ProcessorStream::copy(void *dst, const void *src, size_t bytes, CopyWay way) {
  return queue_->enqueue([=, chip = chip_](Nanos begun, Nanos &until) -> Status {
    DICOMM_TRY(chip->begin_piece());
    if (bytes > 0) std::memmove(dst, src, bytes);
    until = chip->end_of_copy(way, begun, bytes);
    return {};
  });
}

Status ProcessorStream::copy_to_host(void *host, const void *device, size_t bytes) {
  return copy(host, device, bytes, CopyWay::to_host);
}

Status ProcessorStream::copy_to_device(void *device, const void *host, size_t bytes) {
  return copy(device, host, bytes, CopyWay::to_chip);
}

Status ProcessorStream::copy_on_device(void *dst, const void *src, size_t bytes) {
  return copy(dst, src, bytes, CopyWay::within);
}

Status ProcessorStream::reduce(const Arithmetic &arithmetic, void *dst, Form dst_form, const void *a,
                               Form a_form, const void *b, Form b_form, uint64_t count, bool finish) {
  return queue_->enqueue([=, chip = chip_](Nanos, Nanos &) -> Status {
    DICOMM_TRY(chip->begin_piece());
    reduce_elements(arithmetic, dst, dst_form, a, a_form, b, b_form, count, finish);
    return {};
  });
}

Status ProcessorStream::copy_convert(const Arithmetic &arithmetic, void *dst, Form dst_form, const void *a,
                                     Form a_form, uint64_t count, bool finish) {
  return queue_->enqueue([=, chip = chip_](Nanos, Nanos &) -> Status {
    DICOMM_TRY(chip->begin_piece());
    copy_elements(arithmetic, dst, dst_form, a, a_form, count, finish);
    return {};
  });
}

Status ProcessorStream::record(std::unique_ptr<Event> &out) {
  DICOMM_TRY(chip_->health->status());
  auto point = std::make_shared<Point>();
  out = std::make_unique<ProcessorEvent>(point);
  if (queue_->idle()) {
    point->reach({});
  } else {
    queue_->mark([point](const Status &status) { point->reach(status); });
  }
  return {};
}

Status ProcessorStream::wait(const Event &event) {
  const auto *ours = dynamic_cast<const ProcessorEvent *>(&event);
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

Status ProcessorStream::notify(void (*fn)(void *arg), void *arg) {
  DICOMM_TRY(chip_->health->status());
  queue_->mark([fn, arg](const Status &) { fn(arg); });
  return {};
}

}  // namespace dicomm
