#include "transport/shm/connection.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

namespace dicomm {
namespace {

// A message of a few bytes with room for one descriptor beside it.
struct OneDescriptor {
  explicit OneDescriptor(size_t bytes) { iov.iov_len = bytes; }
  std::array<std::byte, 64> data{};
  iovec iov{data.data(), 0};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{nullptr, 0, &iov, 1, control, sizeof(control), 0};

  // What came with the bytes that were read.
  UniqueFd descriptor() {
    const cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header == nullptr || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) return {};
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof(fd));
    return UniqueFd(fd);
  }
};

}  // namespace

ShmConnection::ShmConnection(StreamShared &shared, Owner &owner, UniqueFd fd, bool may_fetch)
    : MessageConnection(shared, owner), fd_(std::move(fd)), tried_(!may_fetch) {
  ++shared_.counters.connections;
}

Status ShmConnection::open() {
  ucred peer{};
  socklen_t length = sizeof(peer);
  // 0: not in our pid namespace, so its memory cannot be named.
  if (::getsockopt(fd_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0) peer_pid_ = peer.pid;
  side_ = shared_.options.self.id < owner_.endpoint().peer() ? 0 : 1;
  if (side_ == 0) {
    DICOMM_TRY(segment_.create());
    DICOMM_TRY(hand_over(segment_.fd()));
    begin();
  }
  return shared_.reactor.add(fd_.get(), EPOLLIN, this);
}

void ShmConnection::close() {
  if (!fd_.valid()) return;
  if (ready_) {
    shared_.reactor.remove(static_cast<Poller *>(this));
    take_back_offers();
  }
  shared_.reactor.remove(fd_.get());
  fd_.reset();
  segment_.unmap();
  segment_.close_fd();
  --shared_.counters.connections;
}

void ShmConnection::after_fork() {
  fd_.reset();
  segment_.unmap();
  segment_.close_fd();
}

Status ShmConnection::hand_over(int fd) {
  OneDescriptor one(1);
  cmsghdr *header = CMSG_FIRSTHDR(&one.message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  if (::sendmsg(fd_.get(), &one.message, MSG_NOSIGNAL | MSG_DONTWAIT) == 1) return {};
  return Status::from_errno(errno, "cannot hand over a descriptor");
}

UniqueFd ShmConnection::take_handed() {
  // It was sent before the message that tells of it, which may have overtaken it in the ring.
  if (handed_.empty() && ready_ && fd_.valid()) read_socket();
  if (handed_.empty()) return {};
  UniqueFd fd = std::move(handed_.front());
  handed_.pop_front();
  return fd;
}

// Bells and descriptors, as many as there are. False: the peer's end is closed.
bool ShmConnection::read_socket() {
  while (!closed_socket_) {
    OneDescriptor some(64);
    const ssize_t n = ::recvmsg(fd_.get(), &some.message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return true;
    closed_socket_ = n <= 0;
    if (UniqueFd fd = some.descriptor(); n > 0 && fd.valid() && handed_.size() < kMostHanded)
      handed_.push_back(std::move(fd));
  }
  return false;
}

Status ShmConnection::take_segment() {
  OneDescriptor one(1);
  const ssize_t n = ::recvmsg(fd_.get(), &one.message, MSG_CMSG_CLOEXEC);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return {};
  UniqueFd fd = n == 1 ? one.descriptor() : UniqueFd();
  if (!fd.valid())
    return Status::make(DICOMM_PEER_LOST, "its process ended before it had shared memory with this one");
  DICOMM_TRY(segment_.adopt(std::move(fd)));
  begin();
  return {};
}

// The segment is mapped: offer a word for the peer to fetch, and start.
void ShmConnection::begin() {
  ready_ = true;
  random_bytes(std::as_writable_bytes(std::span(&cookie_, 1)));
  SharedSide &mine = segment_->sides[side_];
  mine.core.store(-1, std::memory_order_relaxed);
  mine.cookie.store(cookie_, std::memory_order_relaxed);
  mine.cookie_address.store(reinterpret_cast<uint64_t>(&cookie_), std::memory_order_release);
  if (side_ == 1) segment_.close_fd();
  shared_.reactor.add(static_cast<Poller *>(this));
}

void ShmConnection::on_ready(uint32_t) {
  if (!ready_) {
    if (const Status status = take_segment(); !status.ok()) return fail(status);
    if (!ready_) return;
  }
  const bool ended = !read_socket();
  poll();
  if (ended && fd_.valid()) end_of_stream();
}

bool ShmConnection::poll() {
  if (!ready_ || polling_ || !fd_.valid()) return false;
  polling_ = true;  // callbacks may send, which does not come back here
  // What the peer has fetched is told before what it said afterwards, such as a goodbye.
  look();
  bool worked = reclaim();
  report_sent();
  if (fd_.valid()) worked |= read(kBudget);
  if (fd_.valid() && (!idle() || goodbye_ == Goodbye::wanted)) worked |= write_queued();
  worked |= !sent_.empty();
  report_sent();
  polling_ = false;
  if (fd_.valid() && parted()) {
    close();
    owner_.ended(*this);
  }
  return worked;
}

// The peer has sent its last. Ours goes out first when we are leaving too: until then it still reads.
bool ShmConnection::parted() const {
  if (!peer_goodbye_) return false;
  return goodbye_ == Goodbye::none || (goodbye_ == Goodbye::written && fetching_ == 0);
}

bool ShmConnection::arm() {
  if (!ready_ || !fd_.valid()) return false;
  segment_->sides[side_].asleep.store(1, std::memory_order_seq_cst);
  // What changed before the peer could see the flag. Waiting for the rest of a frame is not work.
  if (segment_->rings[1 - side_].tail.load(std::memory_order_seq_cst) != seen_tail_) return true;
  if (!sent_.empty()) return true;
  // Room since the last try. (The goodbye is written by the dispatch that say_goodbye's kick brings about.)
  if (!idle() && segment_->rings[side_].head.load(std::memory_order_seq_cst) != seen_head_) return true;
  for (uint32_t i = 0; i < kSlots && fetching_ > 0; ++i) {
    const auto state = segment_->rings[side_].slots[i].state.load(std::memory_order_seq_cst);
    if (fetches_[i].used && state == SharedSlot::done) return true;
  }
  return false;
}

void ShmConnection::disarm() {
  if (ready_ && fd_.valid()) segment_->sides[side_].asleep.store(0, std::memory_order_relaxed);
}

bool ShmConnection::meets_on(int core) {
  if (!ready_ || !fd_.valid()) return false;
  std::atomic<int32_t> &mine = segment_->sides[side_].core;
  if (mine.load(std::memory_order_relaxed) != core) mine.store(core, std::memory_order_relaxed);
  return segment_->sides[1 - side_].core.load(std::memory_order_relaxed) == core;
}

void ShmConnection::wake_peer() {
  if (segment_->sides[1 - side_].asleep.load(std::memory_order_seq_cst) == 0) return;
  if (segment_->sides[1 - side_].asleep.exchange(0) == 0) return;
  const std::byte bell{1};
  [[maybe_unused]] const ssize_t rung = ::send(fd_.get(), &bell, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void ShmConnection::say_goodbye() {
  if (goodbye_ != Goodbye::none) return;
  goodbye_ = Goodbye::wanted;
  // From inside dispatch or not, the next poll writes it.
  shared_.reactor.kick();
}

void ShmConnection::end_of_stream() {
  const bool between_frames = !in_payload_ && available() == 0;
  if (!between_frames || (!peer_goodbye_ && goodbye_ != Goodbye::written)) return fail(no_goodbye());
  close();
  owner_.ended(*this);
}

}  // namespace dicomm
