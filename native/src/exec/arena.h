// Arena: memory that all ranks of a communicator share, through which the small messages of collectives of
// one round go: every rank writes what it has to say once, and reads what the others have written.
//
// Collectives that use it take turns, numbered alike on all ranks. In each turn a rank posts a slot: what it
// called, and a message for each of some ranks. Turns end in any order, but a rank is at most kAhead turns
// ahead of the slowest reader, so that nobody overwrites what somebody has still to read. With half of the
// slots to spare, a rank that reads late still finds what the others called: every call is compared.
//
// Who sleeps says first for what; whoever posts it, or makes room, wakes it with a message. Engine lock held
// throughout.
#pragma once

#include <array>
#include <atomic>
#include <optional>
#include <span>
#include <vector>

#include "base/shared_memory.h"
#include "coll/arena.h"
#include "p2p/wire.h"
#include "progress/reactor.h"

namespace dicomm {

// What a rank called in a turn.
struct ArenaCall {
  int64_t seq = -1;
  Fingerprint fingerprint;
};

// A collective that takes a turn.
class ArenaUser {
 public:
  virtual void arena_changed() = 0;      // may end it
  virtual int awaited_rank() const = 0;  // the only rank whose slot it waits for; kSeveral

 protected:
  ~ArenaUser() = default;
};

// The communicator.
class ArenaOwner {
 public:
  // The rank called something else in the same place.
  virtual void on_other_call(int rank, int64_t seq, const Fingerprint &mine, const Fingerprint &theirs) = 0;
  virtual void wake(int rank) = 0;

 protected:
  ~ArenaOwner() = default;
};

class Arena final : private Poller {
 public:
  static constexpr int kMostRanks = kMostInArena;
  static constexpr int kSeveral = -1;

  Arena(Reactor &reactor, ArenaOwner &owner, uint64_t comm, int rank, int size);
  ~Arena();
  Status create();            // one rank's part
  Status adopt(UniqueFd fd);  // the others', with its descriptor; PROTOCOL when it is something else
  int fd() const { return memory_.fd(); }
  void close_fd() { memory_.close_fd(); }

  // A turn for the user, until leave().
  uint64_t enter(ArenaUser &user);
  void leave(uint64_t turn);
  // Is it this turn's time to post, and is there room?
  bool may_post(uint64_t turn);
  // Posting: begin, put for each message (of equal ones in succession one copy), publish, which may end
  // users.
  void begin(const ArenaCall &call);
  void put(int to, const std::byte *data, uint64_t bytes);
  void publish();
  // Has the rank posted the turn, and the same call as we?
  bool arrived(int from, uint64_t turn) const { return checked_[static_cast<size_t>(from)] > turn; }
  bool posted(uint64_t turn) const { return posted_ > turn; }
  // Has it posted the turn, as far as memory says now?
  bool there(int from, uint64_t turn) const {
    return member(from).posted.load(std::memory_order_acquire) > turn;
  }
  // Its message to us, once arrived; nullopt: there is none. Stays until leave().
  std::optional<std::span<const std::byte>> message(int from, uint64_t turn);
  // Ranks that have not made room for the turn.
  std::vector<int> in_the_way(uint64_t turn) const;

  struct Counters {
    uint64_t operations = 0, bytes_written = 0, bytes_read = 0;
  };
  const Counters &counters() const { return counters_; }

 private:
  static constexpr uint64_t kSlots = 32;
  static constexpr uint64_t kAhead = kSlots / 2;
  // Of slots. No power of two, or all of them would share the same lines of the caches.
  static constexpr uint64_t kStride = kArenaSlotBytes + 576;

  struct Message {
    uint32_t offset, bytes;  // in the slot; bytes kAbsent: none
  };
  struct Slot {
    ArenaCall call;
    Message messages[kMostRanks];  // by reader; the bytes begin behind the last that is in use
  };
  static_assert(sizeof(Slot) + kArenaSlotBytes <= kStride);
  struct Member {                              // written by one rank, but for `wants`
    alignas(64) std::atomic<uint64_t> posted;  // turns
    std::atomic<int32_t> core;                 // where it polled last, and one more; 0: unknown
    alignas(64) std::atomic<uint64_t> done;    // all turns before this one are over for it
    std::atomic<uint64_t> wants;               // what it sleeps for; 0: it does not
  };
  struct Head {
    uint64_t magic, comm, size;
    alignas(64) std::atomic<uint32_t> sleepers;  // ranks that want something
    Member members[kMostRanks];
  };
  struct Active {
    uint64_t turn;
    ArenaUser *user;
  };
  // Member::wants: in the low byte one of these, or kFrom and a rank; above it the turn.
  static constexpr uint64_t kAnything = 1, kEverybody = 2, kFrom = 3;
  static constexpr uint32_t kAbsent = ~uint32_t{0};
  static constexpr size_t kHeadSpace = (sizeof(Head) + 4095) / 4096 * 4096;

  bool poll() override;
  bool arm() override;
  void disarm() override;
  bool meets_on(int core) override;

  void look();
  bool news();
  void wake(bool posted);
  uint64_t wanted() const;
  bool ready_to_post();
  Head &head() const { return *reinterpret_cast<Head *>(memory_.data()); }
  Member &member(int rank) const { return head().members[rank]; }
  std::byte *slot_data(int rank, uint64_t turn) const;
  Slot &slot(int rank, uint64_t turn) const { return *reinterpret_cast<Slot *>(slot_data(rank, turn)); }
  size_t directory() const;

  Reactor &reactor_;
  ArenaOwner &owner_;
  const uint64_t comm_;
  const int rank_, size_;
  SharedMemory memory_;
  std::vector<Active> active_;  // by turn
  uint64_t next_ = 0;           // turn to be given out
  uint64_t posted_ = 0;
  uint64_t room_until_ = 0;                     // turns before this one may be posted
  std::array<uint64_t, kMostRanks> checked_{};  // turns in which the rank called what we called
  std::array<bool, kMostRanks> astray_{};       // its turns are not ours any more: somebody erred
  std::array<ArenaCall, kSlots> calls_{};       // ours, by turn
  bool fresh_ = false;                          // users have not been told of all that has arrived
  uint64_t end_ = 0;                            // of the slot being written
  const std::byte *last_data_ = nullptr;
  Message last_{};
  Counters counters_;
};

}  // namespace dicomm
