// Registrations of messages' memory, kept for the next message that uses the same memory: to pin and unpin a
// mebibyte takes a card longer than to send it.
//
// A registration is kept only of memory that is watched (base/mapping_watch.h), and goes when that is
// unmapped or mapped anew: at once when it is idle, else when its last user gives it back, and no new one
// gets it. It covers whole pages and allows all that a message may need, sent or received, so that one serves
// both ways. The card, and with its key a peer, which is of this job and trusted, may thus write to what
// shares a page with a message, and go on being able to after the message. What cannot be watched is
// registered as it is, for one message.
//
// A chip's memory is not watched: its registration goes to new users as long as the chip's run time says that
// the same allocation is at the address (Device::allocation_number), and goes when that is found to be no
// more, for which each new registration looks at some, or when room is needed. Until then it keeps the whole
// allocation in use that the trainer has freed.
//
// Not here: joining of neighbours into one registration.
#pragma once

#include <array>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mapping_watch.h"
#include "transport/verbs/chip_reach.h"

namespace dicomm {

class RegionCache {
  struct Entry;
  using Entries = std::multimap<std::pair<size_t, uintptr_t>, Entry>;  // by port and first address

 public:
  // The registration of one message's memory, for as long as this exists.
  class Region {
   public:
    Region() = default;
    ~Region() { reset(); }
    Region(const Region &) = delete;
    Region &operator=(const Region &) = delete;
    void reset();
    bool valid() const { return cache_ != nullptr; }
    const ibv::Mr *operator->() const { return entry_->second.mr; }

   private:
    friend class RegionCache;
    RegionCache *cache_ = nullptr;
    Entries::iterator entry_;
  };

  struct Counters {
    uint64_t hits = 0, misses = 0, invalidations = 0;
  };

  // Keeps `most` registrations of `most_bytes` in all, those in use counted.
  RegionCache(const Ports &ports, size_t most, size_t most_bytes);
  // No Region is left.
  ~RegionCache();
  RegionCache(const RegionCache &) = delete;
  RegionCache &operator=(const RegionCache &) = delete;

  // Before this, and where memory cannot be watched, nothing is kept of the host's. The ports are all there.
  void start();
  // Empty when start() could; else why not.
  const std::string &why_not() const { return why_not_; }
  // `access`: what the message needs, none for reading. The failure is ibv_reg_mr's. chip: whose memory it
  // is, if it is a chip's.
  Status open(size_t port, const std::byte *data, size_t bytes, int access, Region &out,
              const ChipReach *chip = nullptr);
  // Drops what is gone. Due when the descriptor news(), if not -1, is readable.
  void sweep();
  int news() const { return watch_.news(); }
  // Gives up all that is idle. False: nothing was.
  bool give_up_idle();

  const Counters &counters() const { return counters_; }
  size_t kept() const { return kept_; }
  std::string members() const;  // of JSON, each preceded by a comma
  void after_fork() { watch_.after_fork(); }

 private:
  struct Entry {
    uintptr_t end = 0;
    int access = 0;
    ibv::Mr *mr = nullptr;
    uint32_t users = 0;
    // One of these while it may be given to new users.
    std::optional<MappingWatch::Id> watch = {};
    uint64_t allocation = 0;  // of a chip
    std::list<Entries::iterator>::iterator idle = {};

    bool kept() const { return watch.has_value() || allocation != 0; }
  };

  bool find(size_t port, uintptr_t begin, uintptr_t end, int access, uint64_t allocation,
            Entries::iterator &out);
  Status add(size_t port, const std::byte *data, size_t bytes, int access, Entries::iterator &out);
  Status add_of_chip(size_t port, const std::byte *data, size_t bytes, int access, const ChipReach &chip,
                     uint64_t allocation, Entries::iterator &out);
  void keep(Entries::iterator entry);
  void give_up_freed(const ChipReach &chip);
  bool make_place(size_t bytes);
  void lose(Entries::iterator entry);
  void leave(Entries::iterator entry);
  void forget(Entries::iterator entry);
  void remove(Entries::iterator entry);

  const Ports &ports_;
  const size_t most_, most_bytes_;
  const uintptr_t page_;
  MappingWatch watch_;
  std::string why_not_ = "not started";
  Entries entries_;
  std::list<Entries::iterator> idle_;        // longest unused first
  std::vector<Entries::iterator> by_watch_;  // by MappingWatch::Id
  size_t kept_ = 0, kept_bytes_ = 0;
  size_t longest_ = 0;  // of all ever kept
  Counters counters_;
};

using Region = RegionCache::Region;

}  // namespace dicomm
