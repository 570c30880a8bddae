// Chip: a Device as operations use it: streams for copies both ways, memory kept between operations, and news
// of finished work for the engine.
#pragma once

#include <list>
#include <memory>
#include <mutex>

#include "device/device.h"
#include "exec/scratch.h"
#include "progress/engine.h"
#include "transport/chip_memory.h"

namespace dicomm {

class CclGroup;
struct ChipTask;

class ChipTaskOwner {
 public:
  // A task of a lane: enqueues its work. On the lane's thread, without the engine lock; what the step reads
  // of the owner does not change meanwhile. group: null where the rank has no library.
  virtual Status run_on_lane(const ChipTask &task, Stream &stream, CclGroup *group) = 0;
  // The task's work is done or has failed. Lock held, from Reactor::dispatch. Exactly once for every task
  // that was started and not taken back.
  virtual void on_chip_done(ChipTask &task, const Status &status) = 0;

 protected:
  ~ChipTaskOwner() = default;
};

// A piece of work on a stream. The owner keeps it, and the memory it touches, until on_chip_done.
struct ChipTask {
  ChipTaskOwner *owner = nullptr;
  uint32_t index = 0;          // the owner's note: the step
  bool ready = false;          // in a lane: what it waits for is there
  bool quiet = false;          // enqueues nothing itself: a call within a group of the library's
  bool calls_library = false;  // in a lane, with `bytes` of this rank's
  uint64_t bytes = 0;
  // The chip's own.
  class Chip *chip = nullptr;
  std::unique_ptr<Event> event;
  Status status;
  ChipTask *next = nullptr;
};

class Chip final : public ChipMemory, private Poller {
 public:
  Chip(Engine &engine, std::unique_ptr<Device> device);
  ~Chip();
  Chip(const Chip &) = delete;
  Status open();
  // No task is under way, or none will be waited for.
  void close(Nanos timeout);

  Device &device() override { return *device_; }
  bool owns(const void *data) const { return device_->owns(data); }
  bool unified() const { return device_->capabilities().unified; }
  ScratchPool &memory() { return *memory_; }  // on the chip
  ScratchPool &pinned() { return *pinned_; }  // on the host

  // Lock held. The task is done when the bytes are there.
  Status to_host(ChipTask &task, void *host, const void *device, size_t bytes);
  Status to_chip(ChipTask &task, void *device, const void *host, size_t bytes);
  // The same in the order of another stream, which tells when they are there.
  Status to_host(Stream &stream, void *host, const void *device, size_t bytes);
  Status to_chip(Stream &stream, void *device, const void *host, size_t bytes);
  // For transports. Lock held.
  Bounce bounce(size_t bytes) override;
  Status to_host(Bounce into, const std::byte *from, size_t bytes, std::weak_ptr<void> listener,
                 Done done) override;
  Status to_chip(std::byte *into, Bounce from, size_t bytes, std::weak_ptr<void> listener,
                 Done done) override;
  // Bytes of all these copies since the chip was opened, started ones included. Lock held.
  struct Copied {
    uint64_t to_host = 0, to_chip = 0;
  };
  Copied copied() const { return copied_; }
  // Nothing is copied: the task is done when all copies to the host so far are.
  Status after_copies(ChipTask &task) { return watch(task, *out_); }
  Status after_copies_to_chip(ChipTask &task) { return watch(task, *in_); }
  // Copies from now on start after the work that is on `stream` now.
  Status follow(Stream &stream);
  // The trainer's (null: its default one). What is enqueued on `lane` from now on starts after it too.
  Status follow(void *stream, Stream *lane);
  // Sends that wait for their bytes from the chip: what is sent later must not overtake them.
  size_t sends_under_way = 0;

  // Behind the work enqueued on `stream` so far. Any thread.
  Status watch(ChipTask &task, Stream &stream);
  // `task` has ended with `status`. Any thread.
  void report(ChipTask &task, const Status &status);

 private:
  class Copy;

  Status start_copy(Bounce bounce, std::weak_ptr<void> listener, Done done,
                    const std::function<Status(ChipTask &)> &start);
  Status follow(const Event &event);
  bool poll() override;
  bool arm() override;
  void disarm() override {}
  bool meets_on(int) override { return false; }
  static void notified(void *task);
  void push(ChipTask &task);

  Engine &engine_;
  std::unique_ptr<Device> device_;
  std::shared_ptr<ScratchPool> memory_, pinned_;
  std::unique_ptr<Stream> out_, in_;
  Copied copied_;
  bool closing_ = false;
  std::list<std::unique_ptr<Copy>> copies_;  // for transports, under way
  std::mutex mutex_;                         // after the engine lock
  ChipTask *done_ = nullptr, **last_done_ = &done_;
  bool asleep_ = false;  // the engine must be woken
};

}  // namespace dicomm
