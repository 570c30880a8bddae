#include "transport/stream/attempt.h"

#include <errno.h>
#include <sys/socket.h>

namespace dicomm {

Attempt::Attempt(StreamShared &shared, Owner &owner, const SocketAddress &address, const Key &key,
                 const StreamHello &hello)
    : shared_(shared), owner_(owner), address_(address), key_(key), hello_(hello) {}

Attempt::~Attempt() {
  close();
  shared_.reactor.cancel(deadline_);
  shared_.reactor.cancel(pause_);
}

void Attempt::close() {
  handshake_.reset();
  if (!fd_.valid()) return;
  shared_.reactor.remove(fd_.get());
  fd_.reset();
}

void Attempt::start() {
  deadline_ = shared_.reactor.at(deadline_after(shared_.options.connect_timeout), [this] {
    Status why = last_;
    if (why.ok()) {
      const char *what = handshake_ ? "it accepts connections but does not answer" : "it does not answer";
      why = Status::system_failure(DICOMM_CONNECT_FAILED, ETIMEDOUT, concat(address_.text(), ": ", what));
    }
    owner_.failed(*this, why);
  });
  if (Status status = connect(); !status.ok())
    pause_ = shared_.reactor.at(now(), [this, status] { retry_or_fail(status); });
}

Status Attempt::connect() {
  close();
  UniqueFd fd(::socket(address_.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto failure = [&] {
    return Status::system_failure(DICOMM_CONNECT_FAILED, errno,
                                  concat("cannot connect to ", address_.text()));
  };
  if (!fd.valid()) return failure();
  tune_socket(fd.get());
  if (::connect(fd.get(), address_.get(), address_.length) != 0 && errno != EINPROGRESS) return failure();
  DICOMM_TRY(shared_.reactor.add(fd.get(), EPOLLOUT, this));
  fd_ = std::move(fd);
  return {};
}

void Attempt::on_ready(uint32_t) {
  if (const Status status = advance(); !status.ok()) return retry_or_fail(status);
  if (handshake_->done()) return conclude();
  shared_.reactor.modify(fd_.get(), handshake_->output().empty() ? EPOLLIN : EPOLLOUT);
}

Status Attempt::advance() {
  if (!handshake_) {
    int error = 0;
    socklen_t length = sizeof(error);
    ::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error == 0 && connected_to_itself(fd_.get())) error = ECONNREFUSED;
    if (error != 0)
      return Status::system_failure(DICOMM_CONNECT_FAILED, error,
                                    concat("cannot connect to ", address_.text()));
    Hello hello;
    std::memcpy(hello.data(), &hello_, sizeof(hello_));
    handshake_ = Handshake::client(Service::transport, key_, hello);
  }
  return pump(*handshake_, fd_.get()).with([&](Failure &f) { f.text = address_.text() + ": " + f.text; });
}

void Attempt::conclude() {
  switch (handshake_->verdict()) {
    case kVerdictAccept: {
      shared_.reactor.remove(fd_.get());
      UniqueFd fd = std::move(fd_);
      return owner_.connected(*this, std::move(fd));
    }
    case kVerdictYield:
      return owner_.yielded(*this);
    case kVerdictBusy:
      return retry_or_fail(Status::system_failure(DICOMM_CONNECT_FAILED, EBUSY,
                                                  "it still holds an older connection from here"));
    default:
      return owner_.failed(*this, Status::make(DICOMM_CONNECT_FAILED, "another process now listens at ",
                                               address_.text(), ": it was restarted"));
  }
}

// Another try helps against a listener that is overrun or still clears away an older connection, and when
// we are short of descriptors. It does not help when nobody listens: a living peer's listener was there
// before its address was known.
void Attempt::retry_or_fail(const Status &why) {
  const Failure &failure = *why.failure();
  const int error = failure.foreign_code;
  const bool transient = failure.foreign_domain == "errno" &&
                         (error == ECONNRESET || error == EBUSY || error == EMFILE || error == ENFILE ||
                          error == ENOBUFS || error == ENOMEM || error == EAGAIN || error == EADDRNOTAVAIL);
  if (!transient) return owner_.failed(*this, why);
  close();
  last_ = why;
  pause_ = shared_.reactor.at(now() + kPause, [this] {
    if (const Status status = connect(); !status.ok()) retry_or_fail(status);
  });
}

}  // namespace dicomm
