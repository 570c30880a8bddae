#include "exec/chip.h"

#include <algorithm>
#include <map>
#include <new>
#include <utility>

namespace dicomm {

namespace {

// Allocations by address, for a pool that knows addresses only.
class DeviceMemory final : public ScratchSource {
 public:
  DeviceMemory(Device &device, bool pinned) : device_(device), pinned_(pinned) {}

  std::byte *allocate(uint64_t bytes) override {
    std::unique_ptr<Allocation> made;
    const Status status = pinned_ ? device_.allocate_pinned(bytes, made) : device_.allocate(bytes, made);
    if (!status.ok()) throw std::bad_alloc();
    auto *data = static_cast<std::byte *>(made->data());
    const std::lock_guard lock(mutex_);
    made_.emplace(data, std::move(made));
    return data;
  }

  void free(std::byte *data) override {
    std::unique_ptr<Allocation> gone;  // freeing may block: not under the lock
    const std::lock_guard lock(mutex_);
    gone = std::move(made_.extract(data).mapped());
  }

 private:
  Device &device_;
  const bool pinned_;
  std::mutex mutex_;
  std::map<std::byte *, std::unique_ptr<Allocation>> made_;
};

}  // namespace

class Chip::Copy final : private ChipTaskOwner {
 public:
  Copy(Chip &chip, Bounce bounce, std::weak_ptr<void> listener, Done done)
      : chip_(chip), bounce_(std::move(bounce)), listener_(std::move(listener)), done_(std::move(done)) {
    task.owner = this;
  }
  ChipTask task;

 private:
  Status run_on_lane(const ChipTask &, Stream &, CclGroup *) override { return {}; }  // it has no lane
  void on_chip_done(ChipTask &, const Status &status) override {
    auto &all = chip_.copies_;
    const auto self =
        std::find_if(all.begin(), all.end(), [&](const auto &one) { return one.get() == this; });
    const std::unique_ptr<Copy> keep = std::move(*self);
    all.erase(self);
    if (!chip_.closing_ && !listener_.expired()) done_(status);
  }

  Chip &chip_;
  const Bounce bounce_;
  const std::weak_ptr<void> listener_;
  const Done done_;
};

Chip::Chip(Engine &engine, std::unique_ptr<Device> device)
    : engine_(engine),
      device_(std::move(device)),
      memory_(std::make_shared<ScratchPool>(std::make_unique<DeviceMemory>(*device_, false))),
      pinned_(std::make_shared<ScratchPool>(std::make_unique<DeviceMemory>(*device_, true))) {}

Chip::~Chip() = default;

Status Chip::open() {
  DICOMM_TRY(device_->make_stream(out_));
  DICOMM_TRY(device_->make_stream(in_));
  auto lock = engine_.lock();
  engine_.reactor().add(this);
  return {};
}

void Chip::close(Nanos timeout) {
  {
    auto lock = engine_.lock();
    engine_.reactor().remove(this);
    closing_ = true;
  }
  memory_.reset();
  pinned_.reset();
  const Status closed = device_->close(timeout);
  {
    auto lock = engine_.lock();
    poll();  // requests that only wait for their tasks to end
  }
  if (!closed.ok())
    for (auto &copy : copies_) static_cast<void>(copy.release());  // left to the process's end with the work
  out_.reset();
  in_.reset();
}

Status Chip::to_host(Stream &stream, void *host, const void *device, size_t bytes) {
  copied_.to_host += bytes;
  return stream.copy_to_host(host, device, bytes);
}

Status Chip::to_chip(Stream &stream, void *device, const void *host, size_t bytes) {
  copied_.to_chip += bytes;
  return stream.copy_to_device(device, host, bytes);
}

Status Chip::to_host(ChipTask &task, void *host, const void *device, size_t bytes) {
  DICOMM_TRY(to_host(*out_, host, device, bytes));
  return watch(task, *out_);
}

Status Chip::to_chip(ChipTask &task, void *device, const void *host, size_t bytes) {
  DICOMM_TRY(to_chip(*in_, device, host, bytes));
  return watch(task, *in_);
}

Chip::Bounce Chip::bounce(size_t bytes) {
  try {
    const auto memory = std::make_shared<Scratch>(pinned_->take(bytes));
    return {memory, memory->get()};
  } catch (const std::bad_alloc &) {
    return nullptr;
  }
}

Status Chip::start_copy(Bounce bounce, std::weak_ptr<void> listener, Done done,
                        const std::function<Status(ChipTask &)> &start) {
  copies_.push_back(std::make_unique<Copy>(*this, std::move(bounce), std::move(listener), std::move(done)));
  // Of one that fails a part may be under way: it is kept, and nobody hears of it.
  return start(copies_.back()->task);
}

Status Chip::to_host(Bounce into, const std::byte *from, size_t bytes, std::weak_ptr<void> listener,
                     Done done) {
  std::byte *const host = into.get();
  return start_copy(std::move(into), std::move(listener), std::move(done),
                    [&](ChipTask &task) { return to_host(task, host, from, bytes); });
}

Status Chip::to_chip(std::byte *into, Bounce from, size_t bytes, std::weak_ptr<void> listener, Done done) {
  const std::byte *const host = from.get();
  return start_copy(std::move(from), std::move(listener), std::move(done),
                    [&](ChipTask &task) { return to_chip(task, into, host, bytes); });
}

Status Chip::follow(Stream &stream) {
  std::unique_ptr<Event> now;
  DICOMM_TRY(stream.record(now));
  return follow(*now);
}

Status Chip::follow(const Event &event) {
  DICOMM_TRY(out_->wait(event));
  return in_->wait(event);
}

Status Chip::follow(void *stream, Stream *lane) {
  std::unique_ptr<Stream> theirs;
  DICOMM_TRY(device_->wrap(stream, theirs));
  std::unique_ptr<Event> now;
  DICOMM_TRY(theirs->record(now));
  bool done = false;
  DICOMM_TRY(now->query(done));
  if (done) return {};
  DICOMM_TRY(follow(*now));
  return lane == nullptr ? Status() : lane->wait(*now);
}

Status Chip::watch(ChipTask &task, Stream &stream) {
  task.chip = this;
  DICOMM_TRY(stream.record(task.event));
  return stream.notify(&Chip::notified, &task);
}

// On a thread of the vendor's, which must not ask the vendor how the work went.
void Chip::notified(void *task) {
  auto &done = *static_cast<ChipTask *>(task);
  done.chip->push(done);
}

void Chip::report(ChipTask &task, const Status &status) {
  task.event.reset();
  task.status = status;
  push(task);
}

void Chip::push(ChipTask &task) {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    task.next = nullptr;
    *last_done_ = &task;
    last_done_ = &task.next;
    wake = std::exchange(asleep_, false);
  }
  if (wake) engine_.reactor().kick();
}

bool Chip::poll() {
  ChipTask *task = nullptr;
  {
    const std::lock_guard lock(mutex_);
    asleep_ = false;
    task = std::exchange(done_, nullptr);
    last_done_ = &done_;
  }
  const bool any = task != nullptr;
  while (task != nullptr) {
    ChipTask &done = *task;
    task = done.next;  // its owner may be gone after the call
    if (done.event) {
      bool over = false;
      done.status = done.event->query(over);
      done.event.reset();
    }
    const Status status = std::exchange(done.status, {});
    done.owner->on_chip_done(done, status);
  }
  return any;
}

bool Chip::arm() {
  const std::lock_guard lock(mutex_);
  asleep_ = done_ == nullptr;
  return !asleep_;
}

}  // namespace dicomm
