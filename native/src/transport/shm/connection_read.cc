// The receiving half of ShmConnection.

#include <errno.h>
#include <sys/uio.h>

#include <algorithm>

#include "transport/shm/connection.h"

namespace dicomm {
namespace {

// One copy from the other process's memory into ours.
Status read_memory(pid_t pid, uint64_t address, std::byte *into, size_t size) {
  size_t done = 0;
  while (done < size) {
    const iovec local{into + done, size - done};
    const iovec remote{reinterpret_cast<void *>(address + done), size - done};
    const ssize_t n = ::process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      return Status::system_failure(DICOMM_PEER_LOST, n < 0 ? errno : EFAULT,
                                    concat("cannot read ", size, " bytes of process ", pid));
    }
    done += static_cast<size_t>(n);
  }
  return {};
}

}  // namespace

// Can we read the peer's memory? It has left a word to compare.
void ShmConnection::try_fetching() {
  const SharedSide &theirs = segment_->sides[1 - side_];
  const uint64_t address = theirs.cookie_address.load(std::memory_order_acquire);
  if (address == 0) return;
  tried_ = true;
  uint64_t word = 0;
  const bool readable =
      peer_pid_ > 0 &&
      read_memory(peer_pid_, address, reinterpret_cast<std::byte *>(&word), sizeof(word)).ok();
  if (readable && word == theirs.cookie.load(std::memory_order_relaxed)) {
    segment_->sides[side_].reads_directly.store(1, std::memory_order_release);
  }
}

// At what the peer has told and done so far.
void ShmConnection::look() {
  if (!tried_) try_fetching();
  if (!peer_fetches_)
    peer_fetches_ = segment_->sides[1 - side_].reads_directly.load(std::memory_order_acquire) != 0;
  seen_tail_ = segment_->rings[1 - side_].tail.load(std::memory_order_acquire);
}

// True if anything was read.
bool ShmConnection::read(size_t budget) {
  SharedRing &ring = segment_->rings[1 - side_];
  if (available() == 0) return false;
  if (available() > kRingBytes) {
    fail(Status::make(DICOMM_PROTOCOL, "its shared memory has positions that cannot be"));
    return true;
  }
  const uint64_t limit = head_ + budget;
  while (fd_.valid() && head_ < limit) {
    const uint64_t before = head_;
    const bool more = in_payload_ ? read_payload() : begin_payload();
    if (!fd_.valid()) return true;
    if (head_ != before) {
      ring.head.store(head_, std::memory_order_seq_cst);
      if (ring.blocked.load(std::memory_order_seq_cst) != 0) wake_peer();
    }
    if (!more) break;
  }
  return true;
}

void ShmConnection::get(void *into, size_t size) {
  const size_t at = head_ % kRingBytes;
  const size_t first = std::min<size_t>(size, kRingBytes - at);
  const std::byte *ring = segment_.ring(1 - side_);
  std::memcpy(into, ring + at, first);
  std::memcpy(static_cast<std::byte *>(into) + first, ring, size - first);
  head_ += size;
}

// False: more must come first, or the connection is over.
bool ShmConnection::begin_payload() {
  if (available() < sizeof(uint64_t) || peer_goodbye_) return false;
  uint64_t length;
  get(&length, sizeof(length));
  if (length == kGoodbye) {
    peer_goodbye_ = true;
    return false;
  }
  fetch_ = (length & kFetch) != 0;
  const size_t wanted = kHeaderBytes + (fetch_ ? sizeof(uint64_t) : 0);
  if (available() < wanted) {
    head_ -= sizeof(length);  // read it again with the rest
    return false;
  }
  get(header_.data(), kHeaderBytes);
  payload_size_ = length & ~kFetch;
  payload_read_ = 0;
  if (payload_size_ > kMaxShmPayload) {
    fail(Status::make(DICOMM_PROTOCOL, "it sent a frame of ", payload_size_,
                      " bytes, which dicomm never does"));
    return false;
  }
  if (!announce(header_, payload_size_, incoming_)) return false;
  in_payload_ = true;
  if (fetch_ && !fetch()) return false;
  if (fetch_ || payload_size_ == 0) end_payload();
  return fd_.valid();
}

bool ShmConnection::fetch() {
  uint64_t index;
  get(&index, sizeof(index));
  SharedSlot *slot = index < kSlots ? &segment_->rings[1 - side_].slots[index] : nullptr;
  uint32_t expected = SharedSlot::offered;
  if (slot == nullptr || !slot->state.compare_exchange_strong(expected, SharedSlot::reading)) {
    const bool taken_back = slot != nullptr && expected == SharedSlot::free;
    fail(taken_back
             ? Status::make(DICOMM_PEER_LOST, "it closed its context before a message had been fetched")
             : Status::make(DICOMM_PROTOCOL, "it offers a message that is not there"));
    return false;
  }
  Status status;
  if (incoming_->data != nullptr) {
    status =
        read_memory(peer_pid_, slot->address.load(std::memory_order_seq_cst), incoming_->data, payload_size_);
  }
  slot->state.store(SharedSlot::done, std::memory_order_seq_cst);
  wake_peer();
  if (!status.ok()) fail(status);
  return status.ok();
}

bool ShmConnection::read_payload() {
  const size_t part = std::min<uint64_t>(available(), payload_size_ - payload_read_);
  if (part == 0) return false;
  if (incoming_->data != nullptr) {
    get(incoming_->data + payload_read_, part);
  } else {
    head_ += part;
  }
  payload_read_ += part;
  if (payload_read_ == payload_size_) end_payload();
  return fd_.valid();
}

void ShmConnection::end_payload() {
  in_payload_ = false;
  deliver(header_, payload_size_, std::exchange(incoming_, nullptr));
}

}  // namespace dicomm
