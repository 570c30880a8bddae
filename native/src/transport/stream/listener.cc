#include "transport/stream/listener.h"

#include <errno.h>
#include <sys/socket.h>

namespace dicomm {

class Listener::Stranger final : public FdHandler {
 public:
  Stranger(Listener &listener, UniqueFd fd)
      : listener_(listener),
        fd_(std::move(fd)),
        handshake_(Handshake::server(Service::transport, listener.shared_.options.self.key)) {
    deadline_ =
        reactor().at(since_ + listener.shared_.options.handshake_timeout, [this] { listener_.drop(*this); });
  }
  ~Stranger() {
    reactor().cancel(deadline_);
    if (fd_.valid()) reactor().remove(fd_.get());
  }
  Status open() { return reactor().add(fd_.get(), EPOLLIN, this); }
  void after_fork() { fd_.reset(); }
  Nanos since() const { return since_; }

  // Every way out that ends the handshake destroys this object.
  void on_ready(uint32_t) override {
    if (!pump(handshake_, fd_.get()).ok()) return listener_.drop(*this);
    if (handshake_.proven()) return conclude();
    reactor().modify(fd_.get(), handshake_.output().empty() ? EPOLLIN : EPOLLOUT);
  }

  std::list<Stranger>::iterator self;

 private:
  Reactor &reactor() { return listener_.shared_.reactor; }

  void conclude() {
    StreamHello hello;
    std::memcpy(&hello, handshake_.hello().data(), sizeof(hello));
    hello.host[sizeof(hello.host) - 1] = 0;
    const uint32_t verdict = listener_.owner_.admit(hello);
    handshake_.answer(verdict);
    // 40 bytes always fit into the buffer of a socket that has sent 64.
    if (!pump(handshake_, fd_.get()).ok() || !handshake_.done()) return listener_.drop(*this);
    reactor().remove(fd_.get());
    UniqueFd fd = std::move(fd_);
    Listener &listener = listener_;
    listener.remove(*this);
    if (verdict == kVerdictAccept) listener.owner_.adopt(hello, std::move(fd));
  }

  Listener &listener_;
  UniqueFd fd_;
  Handshake handshake_;
  const Nanos since_ = now();
  Reactor::Timer deadline_{};
};

Listener::Listener(StreamShared &shared, Owner &owner) : shared_(shared), owner_(owner) {}

Listener::~Listener() { close(); }

Status Listener::open(SocketAddress address) {
  address_ = address;
  DICOMM_TRY(listen_on(address_, fd_));
  return shared_.reactor.add(fd_.get(), EPOLLIN, this);
}

void Listener::close() {
  shared_.reactor.cancel(resume_);
  strangers_.clear();
  if (fd_.valid()) shared_.reactor.remove(fd_.get());
  fd_.reset();
}

void Listener::after_fork() {
  fd_.reset();
  for (Stranger &stranger : strangers_) stranger.after_fork();
}

void Listener::drop(Stranger &stranger) {
  ++shared_.counters.strangers_dropped;
  remove(stranger);
}

void Listener::remove(Stranger &stranger) {
  strangers_.erase(stranger.self);
  resume();  // there is room, or a descriptor
}

void Listener::pause(Nanos until) {
  paused_ = true;
  shared_.reactor.modify(fd_.get(), 0);
  resume_ = shared_.reactor.at(until, [this] { resume(); });
}

void Listener::resume() {
  if (!paused_ || !fd_.valid()) return;
  paused_ = false;
  shared_.reactor.cancel(resume_);
  shared_.reactor.modify(fd_.get(), EPOLLIN);
}

bool Listener::make_room() {
  if (strangers_.size() < kMaxStrangers) return true;
  const Nanos old_enough = strangers_.front().since() + kGrace;
  if (now() < old_enough) {
    pause(old_enough);
    return false;
  }
  drop(strangers_.front());
  return true;
}

void Listener::on_ready(uint32_t) {
  while (make_room()) {
    UniqueFd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      // Out of descriptors or memory: polling on would spin.
      if (errno != EAGAIN) pause(now() + kDescriptorPause);
      return;
    }
    tune_socket(fd.get());
    Stranger &stranger = strangers_.emplace_back(*this, std::move(fd));
    stranger.self = std::prev(strangers_.end());
    if (!stranger.open().ok()) drop(stranger);
  }
}

}  // namespace dicomm
