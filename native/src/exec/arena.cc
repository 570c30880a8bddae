#include "exec/arena.h"

#include <algorithm>
#include <cstring>

namespace dicomm {

namespace {

constexpr uint64_t kMagic = 0x31616e65'72616364;  // "dcarena1"

}  // namespace

Arena::Arena(Reactor &reactor, ArenaOwner &owner, uint64_t comm, int rank, int size)
    : reactor_(reactor), owner_(owner), comm_(comm), rank_(rank), size_(size) {}

Arena::~Arena() {
  if (memory_.data() != nullptr) reactor_.remove(this);
}

size_t Arena::directory() const {
  return sizeof(Slot) - sizeof(Message) * static_cast<size_t>(kMostRanks - size_);
}

Status Arena::create() {
  DICOMM_TRY(memory_.create(kHeadSpace + static_cast<size_t>(size_) * kSlots * kStride));
  Head &shared = head();  // zeros are valid atomics
  shared.magic = kMagic;
  shared.comm = comm_;
  shared.size = static_cast<uint64_t>(size_);
  reactor_.add(static_cast<Poller *>(this));
  return {};
}

Status Arena::adopt(UniqueFd fd) {
  DICOMM_TRY(memory_.adopt(std::move(fd), kHeadSpace + static_cast<size_t>(size_) * kSlots * kStride));
  const Head &shared = head();
  if (shared.magic != kMagic || shared.comm != comm_ || shared.size != static_cast<uint64_t>(size_)) {
    memory_.unmap();
    return Status::make(DICOMM_PROTOCOL, "the memory that a peer shares is not this communicator's arena");
  }
  reactor_.add(static_cast<Poller *>(this));
  return {};
}

std::byte *Arena::slot_data(int rank, uint64_t turn) const {
  return memory_.data() + kHeadSpace + (static_cast<uint64_t>(rank) * kSlots + turn % kSlots) * kStride;
}

uint64_t Arena::enter(ArenaUser &user) {
  active_.push_back({next_, &user});
  ++counters_.operations;
  return next_++;
}

void Arena::leave(uint64_t turn) {
  std::erase_if(active_, [&](const Active &active) { return active.turn == turn; });
  const uint64_t done = active_.empty() ? next_ : active_.front().turn;
  Member &mine = member(rank_);
  if (mine.done.load(std::memory_order_relaxed) == done) return;
  mine.done.store(done, std::memory_order_seq_cst);
  if (head().sleepers.load(std::memory_order_seq_cst) > 0) wake(false);
}

bool Arena::may_post(uint64_t turn) {
  if (turn != posted_) return false;
  if (turn < room_until_) return true;
  uint64_t slowest = posted_;
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) slowest = std::min(slowest, member(r).done.load(std::memory_order_seq_cst));
  }
  room_until_ = slowest + kAhead;
  return turn < room_until_;
}

bool Arena::ready_to_post() { return posted_ < next_ && may_post(posted_); }

std::vector<int> Arena::in_the_way(uint64_t turn) const {
  std::vector<int> ranks;
  for (int r = 0; r < size_; ++r) {
    if (r != rank_ && member(r).done.load(std::memory_order_relaxed) + kAhead <= turn) ranks.push_back(r);
  }
  return ranks;
}

void Arena::begin(const ArenaCall &call) {
  calls_[posted_ % kSlots] = call;
  Slot &mine = slot(rank_, posted_);
  mine.call = call;
  for (int r = 0; r < size_; ++r) mine.messages[r] = {0, kAbsent};
  end_ = directory();
  last_data_ = nullptr;
}

void Arena::put(int to, const std::byte *data, uint64_t bytes) {
  if (data == nullptr || data != last_data_ || bytes != last_.bytes) {
    last_data_ = data;
    last_ = {static_cast<uint32_t>(end_), static_cast<uint32_t>(bytes)};
    if (bytes > 0) std::memcpy(slot_data(rank_, posted_) + end_, data, bytes);
    end_ += bytes;
    counters_.bytes_written += bytes;
  }
  slot(rank_, posted_).messages[to] = last_;
}

void Arena::publish() {
  ++posted_;
  member(rank_).posted.store(posted_, std::memory_order_seq_cst);
  if (head().sleepers.load(std::memory_order_seq_cst) > 0) wake(true);
  look();
}

std::optional<std::span<const std::byte>> Arena::message(int from, uint64_t turn) {
  const Message message = slot(from, turn).messages[rank_];
  if (message.bytes > most_in_arena(size_) || message.offset > kStride - message.bytes) return std::nullopt;
  counters_.bytes_read += message.bytes;
  return std::span<const std::byte>(slot_data(from, turn) + message.offset, message.bytes);
}

// At what the others have posted, as far as we have posted too.
void Arena::look() {
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    uint64_t &checked = checked_[static_cast<size_t>(r)];
    if (checked == posted_) continue;
    const uint64_t there = std::min(posted_, member(r).posted.load(std::memory_order_acquire));
    for (; checked < there && !astray_[static_cast<size_t>(r)]; ++checked) {
      const ArenaCall theirs = slot(r, checked).call;
      const ArenaCall mine = calls_[checked % kSlots];
      // One of us has called an operation that is not for the arena. Messages and probes find out which.
      if (theirs.seq != mine.seq) {
        astray_[static_cast<size_t>(r)] = true;
        break;
      }
      if (theirs.fingerprint != mine.fingerprint) {
        return owner_.on_other_call(r, mine.seq, mine.fingerprint, theirs.fingerprint);
      }
      fresh_ = true;
    }
  }
}

bool Arena::poll() {
  if (active_.empty()) return false;
  look();
  if (!fresh_ && !ready_to_post()) return false;
  fresh_ = false;
  for (size_t i = 0; i < active_.size();) {
    ArenaUser *const user = active_[i].user;
    user->arena_changed();
    if (i < active_.size() && active_[i].user == user) ++i;
  }
  return true;
}

uint64_t Arena::wanted() const {
  if (active_.size() != 1 || !posted(active_.front().turn)) return kAnything;
  const int rank = active_.front().user->awaited_rank();
  const uint64_t what = rank == kSeveral ? kEverybody : kFrom + static_cast<uint64_t>(rank);
  return active_.front().turn << 8 | what;
}

bool Arena::news() {
  for (int r = 0; r < size_; ++r) {
    const uint64_t checked = checked_[static_cast<size_t>(r)];
    if (r == rank_ || checked == posted_ || astray_[static_cast<size_t>(r)]) continue;
    if (member(r).posted.load(std::memory_order_seq_cst) > checked) return true;
  }
  return fresh_ || ready_to_post();
}

bool Arena::arm() {
  if (active_.empty()) return false;
  if (member(rank_).wants.exchange(wanted(), std::memory_order_seq_cst) == 0)
    head().sleepers.fetch_add(1, std::memory_order_seq_cst);
  return news();
}

void Arena::disarm() {
  if (member(rank_).wants.exchange(0) != 0) head().sleepers.fetch_sub(1);
}

// Those that want what has changed: a slot is posted, or a turn is over for us, which makes room.
void Arena::wake(bool posted) {
  uint64_t everybody = posted_;
  for (int r = 0; r < size_; ++r)
    everybody = std::min(everybody, member(r).posted.load(std::memory_order_seq_cst));
  for (int r = 0; r < size_; ++r) {
    std::atomic<uint64_t> &wants = member(r).wants;
    const uint64_t what = wants.load(std::memory_order_seq_cst);
    if (r == rank_ || what == 0) continue;
    const uint64_t kind = what & 255, turn = what >> 8;
    const bool from_us = kind == kFrom + static_cast<uint64_t>(rank_) && posted_ > turn;
    const bool due = kind == kAnything || (posted && (from_us || (kind == kEverybody && everybody > turn)));
    if (!due || wants.exchange(0, std::memory_order_seq_cst) == 0) continue;
    head().sleepers.fetch_sub(1);
    owner_.wake(r);
  }
}

bool Arena::meets_on(int core) {
  Member &mine = member(rank_);
  if (mine.core.load(std::memory_order_relaxed) != core + 1)
    mine.core.store(core + 1, std::memory_order_relaxed);
  if (active_.empty()) return false;
  for (int r = 0; r < size_; ++r) {
    if (r != rank_ && !arrived(r, active_.front().turn) &&
        member(r).core.load(std::memory_order_relaxed) == core + 1)
      return true;
  }
  return false;
}

}  // namespace dicomm
