// Tells when memory of this process stops being what it was: when it is unmapped, moved or mapped anew, or
// its pages are dropped (MADV_DONTNEED, MADV_FREE, MADV_REMOVE). Whoever keeps something that was made of
// pages, as a card's registration of them is, learns here that it is of no use any more.
//
// The kernel tells through a userfaultfd, and holds the thread that unmaps until that is read. So a thread
// reads that does nothing else: it takes the lock below and no other, and allocates nothing, for the thread
// that is held may be inside malloc. Ranges are registered for write-protection and none is ever
// write-protected: no page fault is held up.
//
// Watched is private anonymous memory and, from Linux 5.19, shared memory; not files and devices, huge pages
// of hugetlbfs only in whole ones, and no page by two of these at a time. Nobody tells when a file in shared
// memory is truncated, or a hole punched into it, through its descriptor. Kernels before 5.11 are refused: a
// fork there could take pinned pages away from their owner, and nobody tells that either.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"

struct uffd_msg;

namespace dicomm {

class MappingWatch {
 public:
  using Id = uint32_t;

  // Of `most` ranges at a time.
  explicit MappingWatch(size_t most);
  ~MappingWatch();
  MappingWatch(const MappingWatch &) = delete;
  MappingWatch &operator=(const MappingWatch &) = delete;

  // NOT_SUPPORTED says why this process may not watch; then watch() refuses too.
  Status open();
  // Whole pages. They may overlap with others that are watched. NOT_SUPPORTED: this memory cannot be watched,
  // or not now.
  Status watch(uintptr_t begin, uintptr_t end, Id &out);
  // Of a range that is gone, too.
  void unwatch(Id id);
  // Gives each range that is gone, once: a part of it is not what it was. It stays the caller's to unwatch.
  bool take_gone(Id &out);
  // True: take_gone() knows of every change that began before this call. False while some thread is between
  // the change and being told that it was heard: others may have mapped the same addresses again already.
  bool settled() const;
  // Readable since a range was lost; the reader empties it. -1 when not open.
  int news() const { return news_.get(); }
  // In the child: its mappings are not watched, and nothing here is.
  void after_fork();

 private:
  enum class State : uint8_t { unused, watched, losing, gone };
  struct Range {
    uintptr_t begin = 0, end = 0;
    State state = State::unused;
  };

  void run();
  void read_events();
  void take(const uffd_msg &message);
  void lose(uintptr_t begin, uintptr_t end);
  void release(uintptr_t begin, uintptr_t end) const;

  UniqueFd fd_, stop_, news_;
  std::thread thread_;
  std::mutex mutex_;  // of what follows; as long as it is held, the kernel may have a thread wait
  std::vector<Range> ranges_;
  std::vector<Id> unused_, gone_;  // never grow
};

}  // namespace dicomm
