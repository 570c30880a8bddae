// The sending half of ShmConnection.

#include <algorithm>
#include <thread>

#include "transport/shm/connection.h"

namespace dicomm {
namespace {

// A peer that is stopped in the middle of fetching keeps a cancel waiting no longer than this.
constexpr Nanos kFetchPatience = kSecond;

}  // namespace

uint64_t ShmConnection::room() const {
  const uint64_t used = tail_ - segment_->rings[side_].head.load(std::memory_order_acquire);
  return used > kRingBytes ? 0 : kRingBytes - used;
}

// As much as there is room for.
size_t ShmConnection::put(const void *data, size_t size) {
  const size_t part = std::min<uint64_t>(size, room());
  const auto *from = static_cast<const std::byte *>(data);
  const size_t at = tail_ % kRingBytes;
  const size_t first = std::min<size_t>(part, kRingBytes - at);
  if (part == 0) return 0;
  std::memcpy(segment_.ring(side_) + at, from, first);
  std::memcpy(segment_.ring(side_), from + first, part - first);
  tail_ += part;
  return part;
}

void ShmConnection::publish() {
  if (published_ == tail_) return;
  published_ = tail_;
  segment_->rings[side_].tail.store(tail_, std::memory_order_seq_cst);
  wake_peer();
}

int ShmConnection::take_slot(Outgoing &message) {
  if (fetching_ == kSlots) return -1;
  uint32_t i = 0;
  while (fetches_[i].used) ++i;
  fetches_[i].used = true;
  fetches_[i].message = &message;
  ++fetching_;
  SharedSlot &slot = segment_->rings[side_].slots[i];
  slot.address.store(reinterpret_cast<uint64_t>(message.data), std::memory_order_relaxed);
  slot.state.store(SharedSlot::offered, std::memory_order_release);
  return static_cast<int>(i);
}

// Continues the message; true when all of it is in the ring. A message to be fetched needs its whole short
// frame at once, so that it is either offered or not.
bool ShmConnection::write(Outgoing &message) {
  if (message.progress == 0 && fetchable(message) && fetching_ < kSlots) {
    if (room() < kFrameHead + sizeof(uint64_t)) return false;
    const uint64_t length = message.size | kFetch;
    const auto slot = static_cast<uint64_t>(take_slot(message));
    put(&length, sizeof(length));
    put(message.header.data(), message.header.size());
    put(&slot, sizeof(slot));
    return true;
  }
  const uint64_t length = message.size;
  const auto part = [&](size_t begin, const void *data, size_t size) {
    if (message.progress >= begin + size) return true;
    const size_t done = message.progress - begin;
    message.progress += put(static_cast<const std::byte *>(data) + done, size - done);
    return message.progress == begin + size;
  };
  return part(0, &length, sizeof(length)) && part(sizeof(length), message.header.data(), kHeaderBytes) &&
         (message.size == 0 || part(kFrameHead, message.data, message.size));
}

Sent ShmConnection::send(Outgoing &message) {
  message.progress = 0;
  if (!ready_ || !idle() || goodbye_ != Goodbye::none || !fd_.valid()) {
    enqueue(message);
    return Sent::queued;
  }
  SharedRing &ring = segment_->rings[side_];
  const uint32_t fetching = fetching_;
  seen_head_ = ring.head.load(std::memory_order_acquire);
  const bool complete = write(message);
  if (!complete && message.progress == 0) {
    enqueue(message);
  } else if (!complete) {
    current_ = &message;
  }
  if (!complete) {
    ring.blocked.store(1, std::memory_order_seq_cst);
    // Room made before the peer could see that we wait for it.
    if (ring.head.load(std::memory_order_seq_cst) != seen_head_) shared_.reactor.kick();
  }
  publish();
  if (complete) count_sent(message.size);
  return complete && fetching == fetching_ ? Sent::done : Sent::queued;
}

void ShmConnection::flush() {
  if (ready_ && !polling_) poll();
}

// Whatever is queued and fits. True if anything was written.
bool ShmConnection::write_queued() {
  SharedRing &ring = segment_->rings[side_];
  seen_head_ = ring.head.load(std::memory_order_acquire);
  const uint64_t before = tail_;
  bool full = false;
  while (!full) {
    if (!rest_.empty()) {
      rest_written_ += put(rest_.data() + rest_written_, rest_.size() - rest_written_);
      full = rest_written_ < rest_.size();
      if (full) break;
      rest_.clear();
      rest_written_ = 0;
      if (goodbye_ == Goodbye::writing) goodbye_ = Goodbye::written;
      continue;
    }
    if (current_ == nullptr) {
      if (control_.empty() && bulk_.empty()) {
        if (goodbye_ != Goodbye::wanted) break;
        goodbye_ = Goodbye::writing;
        const auto *bytes = reinterpret_cast<const std::byte *>(&kGoodbye);
        rest_.assign(bytes, bytes + sizeof(kGoodbye));
        continue;
      }
      current_ = (control_.empty() ? bulk_ : control_).pop();
    }
    const uint32_t fetching = fetching_;
    full = !write(*current_);
    if (full) break;
    Outgoing *message = std::exchange(current_, nullptr);
    count_sent(message->size);
    if (fetching == fetching_) sent_.push(*message);
  }
  ring.blocked.store(full ? 1 : 0, std::memory_order_seq_cst);
  publish();
  return tail_ != before;
}

// Messages that have been fetched.
bool ShmConnection::reclaim() {
  bool any = false;
  for (uint32_t i = 0; i < kSlots && fetching_ > 0; ++i) {
    Fetch &fetch = fetches_[i];
    SharedSlot &slot = segment_->rings[side_].slots[i];
    if (!fetch.used || slot.state.load(std::memory_order_acquire) != SharedSlot::done) continue;
    slot.state.store(SharedSlot::free, std::memory_order_relaxed);
    if (fetch.message != nullptr) sent_.push(*fetch.message);
    fetch = Fetch{};
    --fetching_;
    any = true;
  }
  return any;
}

// Until nobody reads from the address the slot had before.
void ShmConnection::await_reader(SharedSlot &slot) {
  const Nanos limit = now() + kFetchPatience;
  while (slot.state.load(std::memory_order_seq_cst) == SharedSlot::reading && now() < limit) {
    std::this_thread::yield();
  }
}

// The memory goes back to its owners: the peer must not find it any more.
void ShmConnection::take_back_offers() {
  for (uint32_t i = 0; i < kSlots && fetching_ > 0; ++i) {
    if (!fetches_[i].used) continue;
    SharedSlot &slot = segment_->rings[side_].slots[i];
    uint32_t expected = SharedSlot::offered;
    if (!slot.state.compare_exchange_strong(expected, SharedSlot::free)) await_reader(slot);
    fetches_[i] = Fetch{};
    --fetching_;
  }
}

Connection::Canceled ShmConnection::cancel(Outgoing &message) {
  if (current_ == &message) {
    const uint64_t length = message.size;
    std::vector<std::byte> frame(kFrameHead + message.size);
    std::memcpy(frame.data(), &length, sizeof(length));
    std::memcpy(frame.data() + sizeof(length), message.header.data(), kHeaderBytes);
    if (message.size > 0) std::memcpy(frame.data() + kFrameHead, message.data, message.size);
    rest_.assign(frame.begin() + static_cast<std::ptrdiff_t>(message.progress), frame.end());
    rest_written_ = 0;
    const bool unsent = message.progress == 0;
    if (unsent) rest_.clear();
    current_ = nullptr;
    return unsent ? Canceled::unsent : Canceled::partly;
  }
  if (control_.remove(message) || bulk_.remove(message)) return Canceled::unsent;
  for (uint32_t i = 0; i < kSlots; ++i) {
    Fetch &fetch = fetches_[i];
    if (!fetch.used || fetch.message != &message) continue;
    fetch.message = nullptr;
    if (!segment_.mapped()) return Canceled::partly;
    SharedSlot &slot = segment_->rings[side_].slots[i];
    fetch.copy.assign(message.data, message.data + message.size);
    slot.address.store(reinterpret_cast<uint64_t>(fetch.copy.data()), std::memory_order_seq_cst);
    await_reader(slot);
    return Canceled::partly;
  }
  return sent_.remove(message) ? Canceled::partly : Canceled::unknown;
}

}  // namespace dicomm
