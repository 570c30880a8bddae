#include "transport/tcp/connection.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>

namespace dicomm {
namespace {

constexpr size_t kBatch = 16;
// Bytes moved per readiness and direction before other connections have their turn.
constexpr size_t kBudget = size_t{4} << 20;
// A host that has acknowledged nothing for so long has vanished. A stopped process does not matter: its
// kernel acknowledges. (TCP_USER_TIMEOUT would also kill connections to a slow reader.)
constexpr Nanos kSilence = 5 * kSecond;

size_t frame_size(const Outgoing &message) { return kFrameHead + message.size; }

}  // namespace

// What one sendmsg is asked to write, in order: rest_, current_, control_, bulk_.
struct TcpConnection::Batch {
  std::array<iovec, 1 + 3 * kBatch> iov;
  std::array<uint64_t, kBatch> lengths;
  size_t iov_count = 0;
  size_t messages = 0;
  size_t bytes = 0;

  void add(const void *data, size_t size) {
    if (size == 0) return;
    iov[iov_count++] = {const_cast<void *>(data), size};
    bytes += size;
  }
  bool full() const { return messages == kBatch; }
  void add(const Outgoing &message) {
    uint64_t &length = lengths[messages++];
    length = message.size;
    size_t skip = message.progress;
    const auto part = [&](const void *data, size_t size) {
      const size_t skipped = std::min(skip, size);
      skip -= skipped;
      add(static_cast<const std::byte *>(data) + skipped, size - skipped);
    };
    part(&length, sizeof(length));
    part(message.header.data(), message.header.size());
    if (message.size != 0) part(message.data, message.size);
  }
};

TcpConnection::TcpConnection(StreamShared &shared, Owner &owner, UniqueFd fd, std::vector<std::byte> &scratch)
    : MessageConnection(shared, owner), fd_(std::move(fd)), scratch_(scratch) {
  ++shared_.counters.connections;
}

Status TcpConnection::open() { return shared_.reactor.add(fd_.get(), EPOLLIN, this); }

void TcpConnection::close() {
  if (!fd_.valid()) return;
  shared_.reactor.remove(fd_.get());
  fd_.reset();
  --shared_.counters.connections;
}

void TcpConnection::on_ready(uint32_t events) {
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) receive();
  if (!fd_.valid()) return;
  if (send_error_ != 0)
    return fail(Status::system_failure(DICOMM_PEER_LOST, send_error_, "the connection broke while sending"));
  if ((events & EPOLLOUT) != 0) flush();
}

// ---- sending ----

Sent TcpConnection::send(Outgoing &message) {
  message.progress = 0;
  if (!idle() || flushing_ || goodbye_ != Goodbye::none || send_error_ != 0 || !fd_.valid()) {
    enqueue(message);
    return Sent::queued;
  }
  Batch batch;
  batch.add(message);
  size_t written = 0;
  const bool complete = write(batch, written);
  if (complete) {
    count_sent(message.size);
    return Sent::done;
  }
  enqueue(message);
  settle(written);
  want_output(true);
  return Sent::queued;
}

void TcpConnection::enqueue(Outgoing &message) {
  MessageConnection::enqueue(message);
  queued_bytes_ += frame_size(message);
}

void TcpConnection::fill(Batch &batch) {
  if (idle() && goodbye_ == Goodbye::wanted) {
    const auto *bytes = reinterpret_cast<const std::byte *>(&kGoodbye);
    rest_.assign(bytes, bytes + sizeof(kGoodbye));
    rest_written_ = 0;
    goodbye_ = Goodbye::writing;
  }
  batch.add(rest_.data() + rest_written_, rest_.size() - rest_written_);
  if (current_ != nullptr) batch.add(*current_);
  for (const MessageQueue *queue : {&control_, &bulk_})
    for (const Outgoing *m = queue->front(); m != nullptr && !batch.full(); m = m->next) batch.add(*m);
}

// True: all of it. Never fails here: that is for on_ready, when what the peer said last has been read.
bool TcpConnection::write(Batch &batch, size_t &written) {
  msghdr message{};
  message.msg_iov = batch.iov.data();
  message.msg_iovlen = batch.iov_count;
  ssize_t n;
  do {
    n = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  if (!shared_.watching) shared_.watch();
  written = n < 0 ? 0 : static_cast<size_t>(n);
  if (n < 0 && errno != EAGAIN && errno != ENOBUFS && errno != ENOMEM) send_error_ = errno;
  return written == batch.bytes;
}

// Books what was written: whole messages go to sent_, a partial one becomes current_.
void TcpConnection::settle(size_t written) {
  const size_t of_rest = std::min(written, rest_.size() - rest_written_);
  rest_written_ += of_rest;
  written -= of_rest;
  queued_bytes_ -= goodbye_ == Goodbye::writing ? 0 : of_rest;
  if (rest_written_ == rest_.size()) {
    rest_ = {};
    rest_written_ = 0;
    if (goodbye_ == Goodbye::writing) {
      goodbye_ = Goodbye::written;
      ::shutdown(fd_.get(), SHUT_WR);
    }
  }
  while (written > 0) {
    if (current_ == nullptr) current_ = (control_.empty() ? bulk_ : control_).pop();
    const size_t part = std::min(written, frame_size(*current_) - current_->progress);
    current_->progress += part;
    queued_bytes_ -= part;
    written -= part;
    if (current_->progress < frame_size(*current_)) return;
    count_sent(current_->size);
    sent_.push(*std::exchange(current_, nullptr));
  }
}

// False: the socket takes no more, or there is no more.
bool TcpConnection::flush_once(size_t &written) {
  Batch batch;
  fill(batch);
  if (batch.bytes == 0) return false;
  const bool complete = write(batch, written);
  settle(written);
  if (!complete) want_output(true);
  return complete;
}

// Callbacks send more meanwhile: it goes with the next round.
void TcpConnection::flush() {
  if (flushing_ || !fd_.valid()) return;
  flushing_ = true;
  size_t moved = 0;
  for (bool more = true; more && moved < kBudget && fd_.valid() && send_error_ == 0;) {
    size_t written = 0;
    more = flush_once(written);
    moved += written;
    report_sent();
  }
  flushing_ = false;
  if (!fd_.valid()) return;
  want_output(!idle() || goodbye_ == Goodbye::wanted || send_error_ != 0);
  if (goodbye_ == Goodbye::written && !input_wanted_) {  // the peer had hung up before
    close();
    owner_.ended(*this);
  }
}

TcpConnection::Canceled TcpConnection::cancel(Outgoing &message) {
  if (current_ == &message) {
    Batch batch;
    batch.add(message);
    rest_.clear();
    rest_written_ = 0;
    for (size_t i = 0; i < batch.iov_count; ++i) {
      const auto *bytes = static_cast<const std::byte *>(batch.iov[i].iov_base);
      rest_.insert(rest_.end(), bytes, bytes + batch.iov[i].iov_len);
    }
    current_ = nullptr;
    return Canceled::partly;
  }
  if (control_.remove(message) || bulk_.remove(message)) {
    queued_bytes_ -= frame_size(message);
    return Canceled::unsent;
  }
  return sent_.remove(message) ? Canceled::partly : Canceled::unknown;
}

void TcpConnection::say_goodbye() {
  if (goodbye_ != Goodbye::none) return;
  goodbye_ = Goodbye::wanted;
  want_output(true);
}

void TcpConnection::want_output(bool wanted) {
  if (wanted == output_wanted_ || !fd_.valid()) return;
  output_wanted_ = wanted;
  shared_.reactor.modify(fd_.get(), (input_wanted_ ? EPOLLIN : 0u) | (wanted ? EPOLLOUT : 0u));
}

bool TcpConnection::watch() {
  int outstanding = 0;
  if (!fd_.valid() || ::ioctl(fd_.get(), SIOCOUTQ, &outstanding) != 0 || outstanding == 0) {
    silent_since_ = 0;
    return false;
  }
  tcp_info info{};
  socklen_t length = sizeof(info);
  ::getsockopt(fd_.get(), IPPROTO_TCP, TCP_INFO, &info, &length);
  if (info.tcpi_retransmits == 0 && info.tcpi_probes <= 1) {
    silent_since_ = 0;
  } else if (silent_since_ == 0) {
    silent_since_ = now();
  } else if (now() - silent_since_ >= kSilence && info.tcpi_last_ack_recv >= kSilence / kMillisecond) {
    fail(Status::system_failure(DICOMM_PEER_LOST, ETIMEDOUT,
                                "its host has not answered for 5 s: it is down or cut off"));
  }
  return true;
}

// ---- receiving ----

void TcpConnection::receive() {
  for (size_t budget = kBudget; budget > 0 && fd_.valid() && input_wanted_;) {
    std::array<iovec, 2> iov{};
    size_t parts = 0, direct = 0;
    if (incoming_ != nullptr && incoming_->data != nullptr) {
      direct = payload_size_ - payload_read_;
      iov[parts++] = {incoming_->data + payload_read_, direct};
    }
    iov[parts++] = {scratch_.data(), scratch_.size()};
    const ssize_t n = ::readv(fd_.get(), iov.data(), static_cast<int>(parts));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) return fail(Status::system_failure(DICOMM_PEER_LOST, errno, "the connection broke"));
    if (n == 0) return end_of_stream();
    const size_t count = static_cast<size_t>(n);
    const size_t of_payload = std::min(count, direct);
    payload_read_ += of_payload;
    if (direct != 0 && payload_read_ == payload_size_) end_payload();
    if (!parse(scratch_.data(), count - of_payload)) return;
    if (count < direct + scratch_.size()) return;  // the socket is empty
    budget -= std::min(budget, count);
  }
}

// False: the connection is closed.
bool TcpConnection::parse(const std::byte *bytes, size_t count) {
  while (count > 0 && fd_.valid()) {
    if (incoming_ != nullptr) {
      const size_t part = std::min(count, payload_size_ - payload_read_);
      if (incoming_->data != nullptr) std::copy_n(bytes, part, incoming_->data + payload_read_);
      payload_read_ += part;
      bytes += part;
      count -= part;
      if (payload_read_ == payload_size_) end_payload();
      continue;
    }
    // The length alone first: a goodbye is no longer than that.
    const size_t wanted = head_read_ < sizeof(uint64_t) ? sizeof(uint64_t) : kFrameHead;
    const size_t part = std::min(count, wanted - head_read_);
    std::copy_n(bytes, part, head_.data() + head_read_);
    head_read_ += part;
    bytes += part;
    count -= part;
    if (head_read_ == wanted && !begin_payload()) return false;
  }
  return fd_.valid();
}

bool TcpConnection::begin_payload() {
  uint64_t length;
  std::memcpy(&length, head_.data(), sizeof(length));
  if (length == kGoodbye && !peer_goodbye_) {
    peer_goodbye_ = true;
    head_read_ = 0;
    return true;
  }
  if (length > kMaxPayload || peer_goodbye_) {
    fail(Status::make(DICOMM_PROTOCOL, "it sent a frame of ", length, " bytes, which dicomm never does"));
    return false;
  }
  if (head_read_ < kFrameHead) return true;
  head_read_ = 0;
  std::copy_n(head_.data() + sizeof(length), kHeaderBytes, header_.data());
  payload_size_ = length;
  payload_read_ = 0;
  if (!announce(header_, payload_size_, incoming_)) return false;
  if (payload_size_ == 0) end_payload();
  return fd_.valid();
}

void TcpConnection::end_payload() { deliver(header_, payload_size_, std::exchange(incoming_, nullptr)); }

void TcpConnection::end_of_stream() {
  const bool between_frames = head_read_ == 0 && incoming_ == nullptr;
  if (!between_frames || (!peer_goodbye_ && goodbye_ != Goodbye::written)) return fail(no_goodbye());
  if (peer_goodbye_ && (goodbye_ == Goodbye::wanted || goodbye_ == Goodbye::writing)) {
    // Both are leaving: the peer still reads, so what is queued goes out first.
    input_wanted_ = false;
    shared_.reactor.modify(fd_.get(), EPOLLOUT);
    output_wanted_ = true;
    return;
  }
  close();
  owner_.ended(*this);
}

}  // namespace dicomm
