#include "progress/reactor.h"

#include <errno.h>
#include <sched.h>
#include <sys/eventfd.h>

#include <algorithm>

namespace dicomm {

Status Reactor::open() {
  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.valid()) return Status::from_errno(errno, "cannot create an epoll set");
  wakeup_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wakeup_.valid()) return Status::from_errno(errno, "cannot create an eventfd");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = token(wakeup_.get(), 0);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wakeup_.get(), &event) != 0) {
    return Status::from_errno(errno, "cannot watch the wake-up eventfd");
  }
  return {};
}

Status Reactor::add(int fd, uint32_t events, FdHandler *handler) {
  if (slots_.size() <= static_cast<size_t>(fd)) slots_.resize(fd + 1);
  Slot &slot = slots_[fd];
  epoll_event event{};
  event.events = events;
  event.data.u64 = token(fd, ++slot.generation);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return Status::from_errno(errno, "cannot watch file descriptor ", fd);
  }
  slot.handler = handler;
  return {};
}

void Reactor::modify(int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = token(fd, slots_[fd].generation);
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void Reactor::remove(int fd) {
  if (static_cast<size_t>(fd) >= slots_.size()) return;  // never added
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  ++slots_[fd].generation;
  slots_[fd].handler = nullptr;
}

void Reactor::remove(Poller *poller) {
  // The place stays while dispatch may be walking over it; dispatch sweeps.
  std::replace(pollers_.begin(), pollers_.end(), poller, static_cast<Poller *>(nullptr));
}

bool Reactor::arm() {
  bool ready = false;
  for (Poller *poller : pollers_) {
    if (poller != nullptr && poller->arm()) ready = true;
  }
  return ready;
}

void Reactor::disarm() {
  for (Poller *poller : pollers_) {
    if (poller != nullptr) poller->disarm();
  }
}

bool Reactor::core_is_shared() {
  const int core = sched_getcpu();
  bool shared = false;
  for (Poller *poller : pollers_) {
    if (poller != nullptr && poller->meets_on(core)) shared = true;
  }
  return shared;
}

void Reactor::peek(Batch &batch, bool whole) {
  batch.count = 0;
  batch.interrupted = false;
  batch.brief = !whole && !pollers_.empty() && ++peeks_ < peek_every_;
  if (!batch.brief) {
    fetch(batch, 0);
    peek_every_ = batch.count > 0 ? kOften : std::min(2 * peek_every_, kSeldom);
    peeks_ = 0;
  }
  batch.blocking = false;
}

void Reactor::post(std::function<void()> task) { posted_.push_back(std::move(task)); }

Reactor::Timer Reactor::at(Nanos when, std::function<void()> task) {
  const Timer timer{when, ++timer_ids_};
  timers_.emplace(timer, std::move(task));
  return timer;
}

void Reactor::cancel(const Timer &timer) { timers_.erase(timer); }

void Reactor::fetch(Batch &batch, Nanos until) {
  int timeout = 0;
  if (until == kNever) {
    timeout = -1;
  } else if (until > 0) {
    const Nanos left = std::max<Nanos>(0, until - now());
    timeout = static_cast<int>(std::min<Nanos>((left + kMillisecond - 1) / kMillisecond, 1 << 30));
  }
  batch.interrupted = false;
  batch.blocking = true;
  batch.count = epoll_wait(epoll_.get(), batch.events.data(), static_cast<int>(batch.events.size()), timeout);
  if (batch.count < 0) {
    batch.interrupted = errno == EINTR;
    batch.count = 0;
  }
}

bool Reactor::dispatch(Batch &batch) {
  bool ran = false;
  for (int i = 0; i < batch.count; ++i) {
    const uint64_t name = batch.events[i].data.u64;
    const size_t fd = static_cast<uint32_t>(name);
    if (static_cast<int>(fd) == wakeup_.get()) {
      uint64_t count;
      if (batch.blocking) static_cast<void>(!::read(wakeup_.get(), &count, sizeof count));
      continue;
    }
    const Slot slot = fd < slots_.size() ? slots_[fd] : Slot{};
    if (slot.handler == nullptr || slot.generation != static_cast<uint32_t>(name >> 32)) continue;
    slot.handler->on_ready(batch.events[i].events);
    ran = true;
  }
  batch.count = 0;
  if (!pollers_.empty()) {
    for (size_t i = 0; i < pollers_.size(); ++i) {
      if (pollers_[i] != nullptr && pollers_[i]->poll()) ran = true;
    }
    std::erase(pollers_, nullptr);
  }
  while (!batch.brief && !timers_.empty() && timers_.begin()->first.first <= now()) {
    auto task = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    task();
    ran = true;
  }
  std::vector<std::function<void()>> tasks;
  while (!posted_.empty()) {
    tasks.swap(posted_);
    for (auto &task : tasks) task();
    tasks.clear();
    ran = true;
  }
  return ran;
}

void Reactor::kick() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wakeup_.get(), &one, sizeof one);
}

void Reactor::after_fork() {
  epoll_.reset();
  wakeup_.reset();
  slots_.clear();
  pollers_.clear();
  posted_.clear();
  timers_.clear();
}

}  // namespace dicomm
