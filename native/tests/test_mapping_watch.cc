// What the kernel tells of changes to this process's memory, and that nobody is held up by being watched.
#include "base/mapping_watch.h"

#include <doctest/doctest.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>

#include "base/clock.h"
#include "mappings.h"

using namespace dicomm;
using namespace dicomm::test;

namespace {

using Ids = std::vector<MappingWatch::Id>;

// False: not to be tested here, and why is printed.
bool opened(MappingWatch &watch) {
  const Status status = watch.open();
  if (status.ok()) return true;
  CHECK(status.code() == DICOMM_NOT_SUPPORTED);
  MESSAGE(status.message());
  return false;
}

MappingWatch::Id watched(MappingWatch &watch, const char *begin, size_t pages) {
  MappingWatch::Id id = 0;
  const Status status = watch.watch(address(begin), address(begin) + pages * kPage, id);
  REQUIRE_MESSAGE(status.ok(), status.message());
  return id;
}

Ids gone(MappingWatch &watch) {
  Ids out;
  MappingWatch::Id id = 0;
  while (watch.take_gone(id)) out.push_back(id);
  std::sort(out.begin(), out.end());
  return out;
}

// Of watches: other tests' threads come and go.
size_t threads() {
  size_t count = 0;
  for (const auto &task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    count += name == "dicomm-mappings";
  }
  return count;
}

int exit_code(pid_t child) {
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

}  // namespace

TEST_CASE("mapping watch: every change of the pages is told, and nothing else") {
  MappingWatch watch(4);
  if (!opened(watch)) return;
  struct Change {
    const char *name;
    bool told;
    std::function<bool(const Mapping &)> make;
  };
  const auto advice = [](int value) {
    return [=](const Mapping &m) { return ::madvise(m.page(1), kPage, value) == 0; };
  };
  char *moved = nullptr;
  const auto move = [&](int flags, size_t pages) {
    return [&, flags, pages](const Mapping &m) {
      moved = static_cast<char *>(::mremap(m.data, pages * kPage, pages * kPage, flags, moved));
      return moved != MAP_FAILED;
    };
  };
  const Change changes[] = {
      {"munmap", true, [](const Mapping &m) { return ::munmap(m.data, 4 * kPage) == 0; }},
      {"munmap of a part", true, [](const Mapping &m) { return ::munmap(m.page(3), 2 * kPage) == 0; }},
      {"mmap over a part", true, [](const Mapping &m) { return map_pages(1, m.page(2)) != nullptr; }},
      {"MADV_DONTNEED", true, advice(MADV_DONTNEED)},
      {"MADV_FREE", true, advice(MADV_FREE)},
      {"mremap", true, move(MREMAP_MAYMOVE | MREMAP_FIXED, 4)},
      {"mremap of a part", true, move(MREMAP_MAYMOVE | MREMAP_FIXED, 1)},
      {"mremap that leaves the mapping", true, move(MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, 4)},
      {"mremap to less", true,
       [](const Mapping &m) { return ::mremap(m.data, 4 * kPage, kPage, 0) == m.data; }},
      {"protection", false,
       [](const Mapping &m) { return ::mprotect(m.data, kPage, PROT_READ | PROT_WRITE) == 0; }},
      {"MADV_WILLNEED", false, advice(MADV_WILLNEED)},
      {"munmap before it", false, [](const Mapping &m) { return ::munmap(m.whole, kPage) == 0; }},
      {"munmap after it", false, [](const Mapping &m) { return ::munmap(m.page(4), kPage) == 0; }},
  };
  for (const Change &change : changes) {
    CAPTURE(change.name);
    const Mapping memory(4), place(4);
    moved = place.data;
    std::fill(memory.data, memory.page(4), 1);
    const MappingWatch::Id id = watched(watch, memory.data, 4);
    CHECK(gone(watch) == Ids{});
    REQUIRE(change.make(memory));
    CHECK(watch.settled());
    CHECK(gone(watch) == (change.told ? Ids{id} : Ids{}));
    CHECK(gone(watch) == Ids{});
    uint64_t count = 0;
    CHECK((::read(watch.news(), &count, sizeof(count)) == sizeof(count)) == change.told);
    watch.unwatch(id);
  }
}

TEST_CASE("mapping watch: no page fault in watched memory is held up") {
  MappingWatch watch(2);
  if (!opened(watch)) return;
  const Mapping memory(4);
  memory.data[0] = 1;
  const MappingWatch::Id first = watched(watch, memory.data, 4);
  // Page 1 is read before it is written, pages 2 and 3 are written first.
  CHECK(memory.page(1)[0] == 0);
  for (size_t i = 0; i < 4; ++i) memory.page(i)[0] = static_cast<char>(i + 5);
  for (size_t i = 0; i < 4; ++i) CHECK(memory.page(i)[0] == static_cast<char>(i + 5));
  CHECK(gone(watch) == Ids{});
  REQUIRE(::madvise(memory.data, 4 * kPage, MADV_DONTNEED) == 0);
  CHECK(memory.page(2)[0] == 0);
  memory.page(3)[0] = 1;
  CHECK(gone(watch) == Ids{first});
  const MappingWatch::Id second = watched(watch, memory.data, 4);
  watch.unwatch(first);  // nothing of the second
  // The kernel faults the pages in, too.
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  REQUIRE(::madvise(memory.data, 4 * kPage, MADV_DONTNEED) == 0);
  CHECK(::write(ends[1], memory.data, kPage) == static_cast<ssize_t>(kPage));
  CHECK(::read(ends[0], memory.page(2), kPage) == static_cast<ssize_t>(kPage));
  ::close(ends[0]);
  ::close(ends[1]);
  CHECK(gone(watch) == Ids{second});
}

TEST_CASE("mapping watch: ranges that overlap") {
  MappingWatch watch(4);
  if (!opened(watch)) return;
  const Mapping memory(8);
  const MappingWatch::Id left = watched(watch, memory.data, 4), right = watched(watch, memory.page(2), 4),
                         inner = watched(watch, memory.page(3), 1), far = watched(watch, memory.page(6), 2);
  MappingWatch::Id more = 0;
  CHECK(watch.watch(address(memory.data), address(memory.page(1)), more).code() == DICOMM_NOT_SUPPORTED);
  watch.unwatch(inner);
  watch.unwatch(left);
  REQUIRE(::madvise(memory.data, 2 * kPage, MADV_DONTNEED) == 0);
  CHECK(gone(watch) == Ids{});
  const MappingWatch::Id again = watched(watch, memory.page(3), 1);
  REQUIRE(::madvise(memory.page(2), kPage, MADV_DONTNEED) == 0);
  CHECK(gone(watch) == Ids{right});
  watch.unwatch(right);
  REQUIRE(::madvise(memory.page(3), kPage, MADV_DONTNEED) == 0);
  CHECK(gone(watch) == Ids{again});
  REQUIRE(::madvise(memory.page(7), kPage, MADV_DONTNEED) == 0);
  watch.unwatch(far);  // what is unwatched is not gone any more
  CHECK(gone(watch) == Ids{});
}

TEST_CASE("mapping watch: memory that cannot be watched") {
  MappingWatch watch(4);
  MappingWatch::Id id = 0;
  const Mapping memory(1);
  CHECK(watch.watch(address(memory.data), address(memory.page(1)), id).code() == DICOMM_NOT_SUPPORTED);
  CHECK_FALSE(watch.take_gone(id));
  CHECK_FALSE(watch.settled());
  if (!opened(watch)) return;
  const int file = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  void *const mapped = ::mmap(nullptr, kPage, PROT_READ, MAP_PRIVATE, file, 0);
  ::close(file);
  REQUIRE(mapped != MAP_FAILED);
  const Status status = watch.watch(address(mapped), address(mapped) + kPage, id);
  CHECK(status.code() == DICOMM_NOT_SUPPORTED);
  CHECK(status.failure()->foreign_code == EINVAL);
  ::munmap(mapped, kPage);
  MappingWatch other(1);
  REQUIRE(opened(other));
  const MappingWatch::Id ours = watched(watch, memory.data, 1);
  CHECK(other.watch(address(memory.data), address(memory.page(1)), id).failure()->foreign_code == EBUSY);
  watch.unwatch(ours);
  CHECK(other.watch(address(memory.data), address(memory.page(1)), id).ok());
}

TEST_CASE("mapping watch: a process that may not watch is told why") {
  const pid_t child = ::fork();
  if (child == 0) {
    sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
                            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const sock_fprog program{4, filter};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) ::_exit(1);
    if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) ::_exit(2);
    MappingWatch watch(1);
    const Status status = watch.open();
    const bool told = status.code() == DICOMM_NOT_SUPPORTED && status.failure()->foreign_code == EPERM &&
                      status.message().find("userfaultfd") != std::string::npos;
    ::_exit(told ? 0 : 3);
  }
  CHECK(exit_code(child) == 0);
}

TEST_CASE("mapping watch: the thread sleeps, and ends with the watch") {
  const size_t before = threads();
  {
    MappingWatch watch(1);
    if (!opened(watch)) return;
    CHECK(threads() == before + 1);
    const Mapping memory(1);
    watched(watch, memory.data, 1);
    const auto used = [] {
      timespec at{};
      ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &at);
      return at.tv_sec * 1000 + at.tv_nsec / 1000000;
    };
    const auto start = used();
    ::usleep(300000);
    CHECK(used() - start < 100);
  }
  // The kernel lists a thread for a moment after it was joined.
  for (const Nanos deadline = deadline_after(5 * kSecond); threads() != before && now() < deadline;)
    ::usleep(1000);
  CHECK(threads() == before);
}

TEST_CASE("mapping watch: a forked child is not watched, and may outlive it") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const Mapping a(8), b(8), c(8), place(8);
  pid_t still = 0;
  {
    MappingWatch watch(8);
    if (!opened(watch)) return;
    const MappingWatch::Id first = watched(watch, a.data, 8), second = watched(watch, b.page(1), 4),
                           third = watched(watch, c.data, 8);
    const pid_t child = ::fork();
    if (child == 0) {
      a.data[0] = 1;
      ::madvise(a.data, kPage, MADV_DONTNEED);
      ::munmap(a.data, 8 * kPage);
      watch.after_fork();
      MappingWatch::Id id = 0;
      ::_exit(watch.watch(address(b.data), address(b.page(1)), id).ok() || watch.take_gone(id));
    }
    CHECK(exit_code(child) == 0);
    CHECK(gone(watch) == Ids{});
    // This one keeps the userfaultfd open, and knows nothing of dicomm.
    still = ::fork();
    if (still == 0) {
      char byte;
      ::close(ends[1]);
      ::_exit(::read(ends[0], &byte, 1) == 0 ? 0 : 1);
    }
    // All ways in which a range is left registered in parts.
    ::munmap(a.page(2), kPage);
    ::munmap(a.page(5), kPage);
    ::mremap(a.data, kPage, kPage, MREMAP_MAYMOVE | MREMAP_FIXED, place.data);
    ::mremap(b.page(2), kPage, kPage, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, place.page(2));
    ::madvise(c.page(3), kPage, MADV_DONTNEED);
    CHECK(gone(watch) == Ids{first, second, third});
    watched(watch, b.page(1), 4);
    watched(watch, b.page(3), 4);
  }
  // Nobody reads any more: a page that is still watched would hold this thread for ever.
  ::munmap(a.data, 8 * kPage);
  ::munmap(b.data, 8 * kPage);
  ::munmap(c.data, 8 * kPage);
  ::munmap(place.data, 8 * kPage);
  ::close(ends[1]);
  CHECK(exit_code(still) == 0);
  ::close(ends[0]);
}

// What a cache relies on: when the watch is settled, and has given what is gone, whoever holds memory that
// was mapped by then finds no older range at its address.
TEST_CASE("mapping watch: threads that unmap and map at the same addresses") {
  MappingWatch watch(64);
  if (!opened(watch)) return;
  std::mutex mutex;
  std::map<MappingWatch::Id, uintptr_t> known;
  size_t used = 0, stale = 0;
  const Nanos deadline = deadline_after(60 * kSecond);
  const auto body = [&] {
    for (bool enough = false; !enough && now() < deadline;) {
      char *const data = map_pages(1);
      data[0] = 1;
      {
        const std::lock_guard lock(mutex);
        const bool settled = watch.settled();
        MappingWatch::Id id = 0;
        while (watch.take_gone(id)) {
          watch.unwatch(id);
          known.erase(id);
        }
        if (settled)
          for (const auto &[old, at] : known) stale += at == address(data);
        if (settled && watch.watch(address(data), address(data) + kPage, id).ok()) {
          known[id] = address(data);
          ++used;
        }
        enough = used >= 1000;
      }
      ::munmap(data, kPage);
    }
  };
  std::vector<std::thread> crowd;
  for (int i = 0; i < 4; ++i) crowd.emplace_back(body);
  for (std::thread &thread : crowd) thread.join();
  CHECK(stale == 0);
  CHECK(used >= 1000);
  CHECK(gone(watch).size() == known.size());
}
