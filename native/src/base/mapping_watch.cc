#include "base/mapping_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <new>

#include "base/thread.h"

namespace dicomm {

namespace {

// UFFD_USER_MODE_ONLY, which needs no privilege; headers older than 5.11 lack it.
constexpr int kUserModeOnly = 1;

using Lock = std::lock_guard<std::mutex>;

void signal(const UniqueFd &event) {
  const uint64_t one = 1;
  (void)!::write(event.get(), &one, sizeof(one));
}

}  // namespace

MappingWatch::MappingWatch(size_t most) : ranges_(most) {
  gone_.reserve(most);
  for (size_t id = most; id > 0; --id) unused_.push_back(static_cast<Id>(id - 1));
}

Status MappingWatch::open() {
  UniqueFd fd(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | kUserModeOnly)));
  const char *const what = "the kernel does not tell this process of changes to its memory: userfaultfd";
  if (!fd.valid()) return Status::system_failure(DICOMM_NOT_SUPPORTED, errno, what);
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_REMAP;
  if (::ioctl(fd.get(), UFFDIO_API, &api) != 0)
    return Status::system_failure(DICOMM_NOT_SUPPORTED, errno, what);
  UniqueFd stop(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), news(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop.valid() || !news.valid()) return Status::from_errno(errno, "eventfd");
  fd_ = std::move(fd);
  stop_ = std::move(stop);
  news_ = std::move(news);
  thread_ = start_thread("dicomm-mappings", [this] { run(); });
  return {};
}

// A forked child that lives on holds the userfaultfd open: what is still watched after this would hold
// whoever unmaps it for ever.
MappingWatch::~MappingWatch() {
  if (!fd_.valid()) return;
  {
    const Lock lock(mutex_);
    for (Range &range : ranges_) {
      if (range.state != State::watched) continue;
      range.state = State::unused;
      release(range.begin, range.end);
    }
  }
  signal(stop_);
  thread_.join();
}

void MappingWatch::after_fork() {
  // The thread object names a thread of the parent. The lock may be held by it for ever; nothing takes it
  // here.
  new (&thread_) std::thread();
  fd_.reset();
  stop_.reset();
  news_.reset();
}

Status MappingWatch::watch(uintptr_t begin, uintptr_t end, Id &out) {
  if (!fd_.valid()) return Status::make(DICOMM_NOT_SUPPORTED, "no memory is watched");
  // An event under way may be of mappings that were at these addresses before.
  if (!settled()) return Status::make(DICOMM_NOT_SUPPORTED, "memory is being unmapped right now");
  int error = 0;
  {
    const Lock lock(mutex_);
    if (unused_.empty()) {
      error = ENOSPC;
    } else {
      uffdio_register request{};
      request.range = {begin, end - begin};
      request.mode = UFFDIO_REGISTER_MODE_WP;
      if (::ioctl(fd_.get(), UFFDIO_REGISTER, &request) != 0) error = errno;
      if (error == ENOMEM) release(begin, end);  // a part may be registered
    }
    if (error == 0) {
      out = unused_.back();
      unused_.pop_back();
      ranges_[out] = {begin, end, State::watched};
      return {};
    }
  }
  return Status::system_failure(DICOMM_NOT_SUPPORTED, error, "this memory cannot be watched");
}

void MappingWatch::unwatch(Id id) {
  if (!fd_.valid()) return;
  const Lock lock(mutex_);
  Range &range = ranges_[id];
  const State before = range.state;
  range.state = State::unused;
  unused_.push_back(id);
  if (before == State::watched) release(range.begin, range.end);
  if (before == State::gone) gone_.erase(std::remove(gone_.begin(), gone_.end(), id), gone_.end());
}

bool MappingWatch::take_gone(Id &out) {
  if (!fd_.valid()) return false;
  const Lock lock(mutex_);
  if (gone_.empty()) return false;
  out = gone_.back();
  gone_.pop_back();
  return true;
}

// The kernel refuses to fill pages, before it looks at which, for as long as a change is under way.
bool MappingWatch::settled() const {
  uffdio_copy nothing{};
  return fd_.valid() && ::ioctl(fd_.get(), UFFDIO_COPY, &nothing) != 0 && errno == EINVAL;
}

// Of the pages given, those that no watched range needs. A failure is of pages that are not there any more.
void MappingWatch::release(uintptr_t begin, uintptr_t end) const {
  while (begin < end) {
    uintptr_t covered = begin, stop = end;
    for (const Range &range : ranges_) {
      if (range.state != State::watched || range.end <= begin) continue;
      if (range.begin <= begin)
        covered = std::max(covered, range.end);
      else
        stop = std::min(stop, range.begin);
    }
    if (covered == begin) {
      uffdio_range pages{begin, stop - begin};
      ::ioctl(fd_.get(), UFFDIO_UNREGISTER, &pages);
      covered = stop;
    }
    begin = covered;
  }
}

// ---- the thread ----

void MappingWatch::run() {
  pollfd both[] = {{fd_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
  while (both[1].revents == 0) {
    ::poll(both, 2, -1);
    read_events();
  }
  // Whoever is about to be held still wants its event read.
  while (!settled()) {
    ::poll(both, 1, 10);
    read_events();
  }
}

// Reading lets the thread go on that was held. Under the lock, so that what is asked after that knows.
void MappingWatch::read_events() {
  const Lock lock(mutex_);
  uffd_msg message;
  while (::read(fd_.get(), &message, sizeof(message)) == sizeof(message)) take(message);
}

void MappingWatch::take(const uffd_msg &message) {
  const auto &remap = message.arg.remap;
  const auto &remove = message.arg.remove;  // of UNMAP as well
  switch (message.event) {
    case UFFD_EVENT_REMAP:
      release(remap.to, remap.to + remap.len);  // the new place is registered as the old one was
      return lose(remap.from, remap.from + remap.len);
    case UFFD_EVENT_REMOVE:
    case UFFD_EVENT_UNMAP:
      return lose(remove.start, remove.end);
    default:
      return;
  }
}

void MappingWatch::lose(uintptr_t begin, uintptr_t end) {
  bool any = false;
  for (Range &range : ranges_) {
    if (range.state != State::watched || range.end <= begin || end <= range.begin) continue;
    range.state = State::losing;
    any = true;
  }
  for (Range &range : ranges_) {
    if (range.state != State::losing) continue;
    range.state = State::gone;
    gone_.push_back(static_cast<Id>(&range - ranges_.data()));
    // Apart, for the kernel takes all of the pages or none, and may know nothing of those in the middle.
    const uintptr_t first = std::max(range.begin, begin), last = std::min(range.end, end);
    release(range.begin, first);
    release(first, last);
    release(last, range.end);
  }
  if (any) signal(news_);
}

}  // namespace dicomm
