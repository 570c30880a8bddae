// What moves the bytes in the doubles: ranks are threads of one process that meet at each call. Streams do
// their work at once, so a rank waits for the others before a call of its returns.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "number_formats.h"

namespace dicomm::doubles {

// Nothing may be copied from and to null.
inline void put(void *to, const void *from, size_t bytes) {
  if (bytes > 0) std::memmove(to, from, bytes);
}

enum Op { sum, prod, max, min, avg };  // as both vendors number them

// One rank's arguments of one collective.
struct Arguments {
  const char *send = nullptr;
  char *recv = nullptr;
  size_t count = 0;
  test::Format format;
  int op = sum;
  int root = 0;
  double factor = 1;

  size_t bytes() const { return count * format.bytes; }
};

struct Meeting {
  std::vector<Arguments> ranks;
  std::set<int> arrived;
  bool done = false;
};

// What the ranks of one id share.
struct Clique {
  std::mutex mutex;
  std::condition_variable changed;
  std::set<int> joined;
  std::map<int, Meeting> meetings;
  std::map<std::pair<int, int>, std::deque<std::vector<char>>> mail;
};

inline std::shared_ptr<Clique> clique_of(uint64_t id) {
  static std::mutex mutex;
  static std::map<uint64_t, std::shared_ptr<Clique>> all;
  const std::lock_guard lock(mutex);
  auto &one = all[id];
  if (!one) one = std::make_shared<Clique>();
  return one;
}

struct Transfer {
  const char *send;  // or null
  char *recv;        // or null
  size_t bytes;
  int peer;
};

// One rank of a clique. `aborted` is under the clique's lock, and frees who waits.
struct Rank {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  int size = 0;
  bool aborted = false;
  int calls = 0;

  // False: aborted first.
  bool wait(std::unique_lock<std::mutex> &lock, const std::function<bool()> &ready) {
    clique->changed.wait(lock, [&] { return ready() || aborted; });
    return ready();
  }
  void abort() {
    const std::lock_guard lock(clique->mutex);
    aborted = true;
    clique->changed.notify_all();
  }
  bool join() {
    std::unique_lock lock(clique->mutex);
    clique->joined.insert(rank);
    clique->changed.notify_all();
    return wait(lock, [&] { return static_cast<int>(clique->joined.size()) == size; });
  }
  // The last rank to come does the work. number: of the call, equal on all ranks.
  bool meet(int number, const Arguments &arguments, void (*work)(Meeting &)) {
    std::unique_lock lock(clique->mutex);
    Meeting &meeting = clique->meetings[number];
    meeting.ranks.resize(size);
    meeting.ranks[rank] = arguments;
    meeting.arrived.insert(rank);
    if (meeting.arrived.size() == static_cast<size_t>(size)) {
      work(meeting);
      meeting.done = true;
      clique->changed.notify_all();
    }
    if (wait(lock, [&] { return meeting.done; })) return true;
    meeting.arrived.erase(rank);
    return false;
  }
  // Sends all, then waits for what it is to receive.
  bool deliver(const std::vector<Transfer> &transfers) {
    std::unique_lock lock(clique->mutex);
    for (const Transfer &one : transfers)
      if (one.send != nullptr) clique->mail[{rank, one.peer}].emplace_back(one.send, one.send + one.bytes);
    clique->changed.notify_all();
    for (const Transfer &one : transfers) {
      if (one.recv == nullptr) continue;
      auto &box = clique->mail[{one.peer, rank}];
      if (!wait(lock, [&] { return !box.empty(); }) || box.front().size() != one.bytes) return false;
      put(one.recv, box.front().data(), one.bytes);
      box.pop_front();
    }
    return true;
  }
};

// ---- the work of each collective ----------------------------------------------------------------

inline double combined(int op, double a, double b) {
  switch (op) {
    case prod:
      return a * b;
    case max:
      return std::max(a, b);
    case min:
      return std::min(a, b);
    default:
      return a + b;
  }
}

// how.count elements from `offset` on, over all ranks.
inline std::vector<char> reduced(const Meeting &meeting, const Arguments &how, size_t offset) {
  std::vector<char> out(how.bytes());
  for (size_t i = 0; i < how.count; ++i) {
    double value = 0;
    for (size_t r = 0; r < meeting.ranks.size(); ++r) {
      const Arguments &one = meeting.ranks[r];
      const double x = decode(how.format, one.send + (offset + i) * how.format.bytes) * one.factor;
      value = r == 0 ? x : combined(how.op, value, x);
    }
    if (how.op == avg) value /= static_cast<double>(meeting.ranks.size());
    encode(how.format, value, out.data() + i * how.format.bytes);
  }
  return out;
}

inline void do_nothing(Meeting &) {}
inline void do_broadcast(Meeting &meeting) {
  const Arguments from = meeting.ranks[meeting.ranks[0].root];
  for (const Arguments &one : meeting.ranks) put(one.recv, from.send, one.bytes());
}
inline void do_allreduce(Meeting &meeting) {
  const std::vector<char> result = reduced(meeting, meeting.ranks[0], 0);
  for (const Arguments &one : meeting.ranks) put(one.recv, result.data(), result.size());
}
inline void do_reduce(Meeting &meeting) {
  const std::vector<char> result = reduced(meeting, meeting.ranks[0], 0);
  put(meeting.ranks[meeting.ranks[0].root].recv, result.data(), result.size());
}
inline void do_allgather(Meeting &meeting) {
  std::vector<char> all;
  for (const Arguments &one : meeting.ranks) all.insert(all.end(), one.send, one.send + one.bytes());
  for (const Arguments &one : meeting.ranks) put(one.recv, all.data(), all.size());
}
inline void do_reduce_scatter(Meeting &meeting) {
  std::vector<std::vector<char>> results;  // before any is written: it may be done in place
  for (size_t r = 0; r < meeting.ranks.size(); ++r)
    results.push_back(reduced(meeting, meeting.ranks[0], r * meeting.ranks[0].count));
  for (size_t r = 0; r < meeting.ranks.size(); ++r)
    put(meeting.ranks[r].recv, results[r].data(), results[r].size());
}

}  // namespace dicomm::doubles
