#include "exec/lane.h"

#include <algorithm>

#include "base/thread.h"

namespace dicomm {

ChipLane::ChipLane(Chip &chip, std::unique_ptr<CclGroup> group, std::vector<int> members)
    : chip_(chip), group_(std::move(group)), members_(std::move(members)) {}

int ChipLane::place_of(int rank) const {
  return static_cast<int>(std::find(members_.begin(), members_.end(), rank) - members_.begin());
}

ChipLane::~ChipLane() { close(false, kAbort); }

Status ChipLane::open() {
  DICOMM_TRY(chip_.device().make_stream(stream_));
  thread_ = start_thread("dicomm-lane", [this] { run(); });
  return {};
}

void ChipLane::close(bool clean, Nanos timeout) {
  if (!thread_.joinable()) return;
  if (!clean) abort();
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
  if (aborter_.joinable()) aborter_.join();
  if (clean && group_) static_cast<void>(group_->close(timeout));  // whatever it says, the group is over
}

void ChipLane::append(ChipTask &task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(&task);
  if (tasks_.front()->ready) changed_.notify_all();
}

void ChipLane::set_ready(ChipTask &task) {
  const std::lock_guard lock(mutex_);
  task.ready = true;
  if (!tasks_.empty() && tasks_.front() == &task) changed_.notify_all();
}

ChipLane::Calls ChipLane::calls() {
  const std::lock_guard lock(mutex_);
  return calls_;
}

size_t ChipLane::take_back(const ChipTaskOwner &owner) {
  const std::lock_guard lock(mutex_);
  return std::erase_if(tasks_, [&](const ChipTask *task) { return task->owner == &owner; });
}

void ChipLane::abort() {
  if (!group_ || aborter_.joinable()) return;
  aborter_ = start_thread("dicomm-abort", [this] { group_->abort(kAbort); });
}

void ChipLane::run() {
  for (;;) {
    ChipTask *task = nullptr;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || (!tasks_.empty() && tasks_.front()->ready); });
      if (stop_) return;
      task = tasks_.front();
      tasks_.pop_front();
      if (task->calls_library) {
        ++calls_.count;
        calls_.bytes += task->bytes;
      }
    }
    Status status = task->owner->run_on_lane(*task, *stream_, group_.get());
    if (status.ok() && !task->quiet) {
      task->chip = &chip_;
      status = chip_.watch(*task, *stream_);
      if (status.ok()) continue;
    }
    task->chip = &chip_;
    chip_.report(*task, status);
  }
}

}  // namespace dicomm
