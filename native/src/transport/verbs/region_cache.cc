#include "transport/verbs/region_cache.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>

#include "base/json.h"

namespace dicomm {

RegionCache::RegionCache(const Ports &ports, size_t most, size_t most_bytes)
    : ports_(ports),
      most_(most),
      most_bytes_(most_bytes),
      page_(static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE))),
      watch_(most),
      by_watch_(most) {}

RegionCache::~RegionCache() {
  for (const auto &port : ports_) port->on_shortage({});
  give_up_idle();
}

void RegionCache::start() {
  // What is idle counts against the limit on locked memory, which others need too.
  for (const auto &port : ports_) port->on_shortage([this] { return give_up_idle(); });
  const Status status = watch_.open();
  why_not_ = status.ok() ? "" : status.sentence();
}

Status RegionCache::open(size_t port, const std::byte *data, size_t bytes, int access, Region &out,
                         const ChipReach *chip) {
  out.reset();
  if (chip != nullptr && chip->way() == ChipReach::Way::host_memory) chip = nullptr;
  const uint64_t allocation = chip != nullptr ? chip->allocation_of(data, bytes) : 0;
  const bool known = chip != nullptr ? allocation != 0 : watch_.settled();
  sweep();
  const auto begin = reinterpret_cast<uintptr_t>(data);
  Entries::iterator entry;
  if (known && find(port, begin, begin + bytes, access, allocation, entry)) {
    ++counters_.hits;
    if (entry->second.users == 0) idle_.erase(entry->second.idle);
  } else {
    ++counters_.misses;
    if (chip != nullptr)
      DICOMM_TRY(add_of_chip(port, data, bytes, access, *chip, allocation, entry));
    else
      DICOMM_TRY(add(port, data, bytes, access, entry));
  }
  ++entry->second.users;
  out.cache_ = this;
  out.entry_ = entry;
  return {};
}

// allocation: 0 for the host's memory. What is found of another allocation is let go.
bool RegionCache::find(size_t port, uintptr_t begin, uintptr_t end, int access, uint64_t allocation,
                       Entries::iterator &out) {
  for (auto at = entries_.upper_bound({port, begin}); at != entries_.begin();) {
    --at;
    Entry &entry = at->second;
    if (at->first.first != port || at->first.second + longest_ < end) return false;
    if (!entry.kept() || entry.end <= begin) continue;
    if (entry.allocation != allocation) {
      const auto gone = at++;
      ++counters_.invalidations;
      lose(gone);
      continue;
    }
    if (entry.end < end || (access & ~entry.access) != 0) continue;
    out = at;
    return true;
  }
  return false;
}

Status RegionCache::add(size_t port, const std::byte *data, size_t bytes, int access,
                        Entries::iterator &out) {
  auto begin = reinterpret_cast<uintptr_t>(data), end = begin + bytes;
  const uintptr_t first = begin / page_ * page_, last = (end + page_ - 1) / page_ * page_;
  Entry entry;
  // Watched before it is registered, so that no change is missed.
  MappingWatch::Id id = 0;
  if (why_not_.empty() && make_place(last - first) && watch_.watch(first, last, id).ok()) {
    entry.watch = id;
    begin = first;
    end = last;
  }
  entry.end = end;
  entry.access = entry.watch ? access | kBothWays : access;
  const auto attempt = [&] {
    return ports_[port]->register_memory(reinterpret_cast<void *>(begin), end - begin, entry.access,
                                         entry.mr);
  };
  Status status = attempt();
  if (!status.ok() && entry.access != access && status.failure()->foreign_code == EFAULT) {
    entry.access = access;  // memory that may not be written, for one
    status = attempt();
  }
  if (!status.ok()) {
    if (entry.watch) watch_.unwatch(*entry.watch);
    return status;
  }
  out = entries_.emplace(std::pair{port, begin}, entry);
  if (!entry.watch) return {};
  by_watch_[*entry.watch] = out;
  keep(out);
  return {};
}

Status RegionCache::add_of_chip(size_t port, const std::byte *data, size_t bytes, int access,
                                const ChipReach &chip, uint64_t allocation, Entries::iterator &out) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  Entry entry;
  give_up_freed(chip);
  if (allocation != 0 && make_place(bytes)) entry.allocation = allocation;
  entry.end = begin + bytes;
  entry.access = entry.kept() ? access | kBothWays : access;
  DICOMM_TRY(chip.register_memory(*ports_[port], data, bytes, entry.access, entry.mr));
  out = entries_.emplace(std::pair{port, begin}, entry);
  if (entry.kept()) keep(out);
  return {};
}

// Of the longest unused of a chip, what is no more.
void RegionCache::give_up_freed(const ChipReach &chip) {
  constexpr int kLooks = 64;  // at a microsecond each, beside a registration
  auto at = idle_.begin();
  for (int looks = 0; at != idle_.end() && looks < kLooks; ++looks) {
    const Entries::iterator entry = *at++;
    const uint64_t number = entry->second.allocation;
    const auto *const data = reinterpret_cast<const std::byte *>(entry->first.second);
    if (number == 0 || chip.allocation_of(data, entry->second.end - entry->first.second) == number) continue;
    ++counters_.invalidations;
    remove(entry);
  }
}

void RegionCache::keep(Entries::iterator entry) {
  const size_t bytes = entry->second.end - entry->first.second;
  ++kept_;
  kept_bytes_ += bytes;
  longest_ = std::max(longest_, bytes);
}

bool RegionCache::make_place(size_t bytes) {
  while (kept_ == most_ || kept_bytes_ + bytes > most_bytes_) {
    if (idle_.empty()) return false;
    remove(idle_.front());
  }
  return true;
}

bool RegionCache::give_up_idle() {
  const bool any = !idle_.empty();
  while (!idle_.empty()) remove(idle_.front());
  return any;
}

void RegionCache::sweep() {
  MappingWatch::Id id = 0;
  while (watch_.take_gone(id)) {
    ++counters_.invalidations;
    lose(by_watch_[id]);
  }
}

void RegionCache::lose(Entries::iterator entry) {
  if (entry->second.users == 0)
    remove(entry);
  else
    forget(entry);
}

// The last user is gone.
void RegionCache::leave(Entries::iterator entry) {
  if (entry->second.kept())
    entry->second.idle = idle_.insert(idle_.end(), entry);
  else
    remove(entry);
}

// No new user gets it.
void RegionCache::forget(Entries::iterator entry) {
  if (entry->second.watch) watch_.unwatch(*entry->second.watch);
  entry->second.watch.reset();
  entry->second.allocation = 0;
  --kept_;
  kept_bytes_ -= entry->second.end - entry->first.second;
}

void RegionCache::remove(Entries::iterator entry) {
  if (entry->second.kept()) {
    forget(entry);
    idle_.erase(entry->second.idle);
  }
  ports_[entry->first.first]->deregister(entry->second.mr);
  entries_.erase(entry);
}

std::string RegionCache::members() const {
  return concat(", \"region_hits\": ", counters_.hits, ", \"region_misses\": ", counters_.misses,
                ", \"region_invalidations\": ", counters_.invalidations, ", \"regions_kept\": ", kept_,
                ", \"regions_not_kept\": ", json_string(why_not_));
}

void RegionCache::Region::reset() {
  if (cache_ == nullptr) return;
  RegionCache &cache = *std::exchange(cache_, nullptr);
  if (--entry_->second.users == 0) cache.leave(entry_);
}

}  // namespace dicomm
