#include "ccl/sim/session.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "base/net.h"

namespace dicomm {

namespace {

// How long the process that serves the store stays when joining failed, for the others to notice it too.
constexpr Nanos kGrace = kSecond / 2;
// How long a communicator that is closed waits for work that nobody drained.
constexpr Nanos kLinger = 100 * kMillisecond;

int64_t left(Nanos deadline) {
  return deadline == kNever ? int64_t{DICOMM_TIMEOUT_NEVER} : std::max<Nanos>(deadline - now(), 1);
}

dicomm_store_options store_options(const std::string &secret, Nanos deadline) {
  dicomm_store_options options{};
  options.size = sizeof options;
  options.secret = reinterpret_cast<const uint8_t *>(secret.data());
  options.secret_len = secret.size();
  options.timeout_ns = left(deadline);
  return options;
}

// The ABI's statuses as a vendor's codes: kept, and mapped like them.
Status from_abi(const std::string &library, const dicomm_error &error) {
  Failure failure;
  switch (error.status) {
    case DICOMM_TIMED_OUT:
    case DICOMM_ABORTED:
    case DICOMM_NO_MEMORY:
      failure.code = static_cast<dicomm_status>(error.status);
      break;
    default:
      failure.code = DICOMM_CCL_FAILED;
  }
  failure.text = concat(library, ": ", static_cast<const char *>(error.message));
  failure.foreign_domain = library;
  failure.foreign_code = error.status;
  return Status(std::move(failure));
}

Status last_abi_error(const std::string &library) {
  dicomm_error error;
  dicomm_last_error(&error);
  return from_abi(library, error);
}

}  // namespace

Status serve_sim_store(const std::string &library, const std::string &address, const std::string &secret,
                       dicomm_store *&out) {
  const auto options = store_options(secret, deadline_after(kSecond));
  const std::string url = "tcp-server://" + join_host_port(address, 0);
  if (dicomm_store_open(url.c_str(), &options, &out) != DICOMM_OK) return last_abi_error(library);
  return {};
}

SimCclSession::~SimCclSession() {
  dicomm_comm_close(comm);
  dicomm_context_close(context_);
  dicomm_store_close(store_);
}

Status SimCclSession::join(const Meeting &meeting, dicomm_store *served, const std::string &address,
                           Nanos deadline) {
  store_ = served;
  const auto options = store_options(meeting.secret, deadline);
  if (store_ == nullptr && dicomm_store_open(meeting.url.c_str(), &options, &store_) != DICOMM_OK)
    return last_error();
  DICOMM_TRY(check_brands(served != nullptr, deadline));
  dicomm_context_options context{};
  context.size = sizeof context;
  context.interface = address.c_str();
  context.secret = options.secret;
  context.secret_len = options.secret_len;
  context.spin_ns = -1;
  if (dicomm_context_create(&context, &context_) != DICOMM_OK) return last_error();
  dicomm_comm_options comm_options{};
  comm_options.size = sizeof comm_options;
  comm_options.name = library_.c_str();
  comm_options.timeout_ns = kLinger;  // operations say for themselves that they have none
  comm_options.init_timeout_ns = left(deadline);
  if (dicomm_comm_create(context_, store_, "group", rank, size, &comm_options, &comm) != DICOMM_OK)
    return last_error();
  // Nobody returns, and may end the group, before all have made their communicator.
  const Status met = barrier(deadline);
  if (met.code() == DICOMM_TIMED_OUT) return met;
  if (!met.ok()) fail(met);  // joined, but somebody has ended the group since
  return {};
}

Status SimCclSession::barrier(Nanos deadline) {
  dicomm_op op{};
  op.size = sizeof op;
  op.opcode = DICOMM_BARRIER;
  op.timeout_ns = left(deadline);
  dicomm_request *request = nullptr;
  if (dicomm_start(comm, &op, &request) != DICOMM_OK) return last_error();
  dicomm_status end = DICOMM_INTERRUPTED;
  while (end == DICOMM_INTERRUPTED) end = dicomm_request_wait(request, DICOMM_TIMEOUT_NEVER);
  const Status status = end == DICOMM_OK ? Status() : request_error(request);
  dicomm_request_free(request);
  return status;
}

Status SimCclSession::read(const std::string &key, int of, std::string &value, Nanos deadline) const {
  std::array<uint8_t, 256> bytes;
  size_t length = 0;
  const int64_t timeout =
      deadline == kNever ? int64_t{DICOMM_TIMEOUT_NEVER} : std::max<Nanos>(deadline - now(), 0);
  const auto got =
      dicomm_store_get(store_, concat(key, of).c_str(), bytes.data(), bytes.size(), &length, timeout);
  if (got == DICOMM_TIMED_OUT)
    return Status::make(DICOMM_TIMED_OUT, library_, ": rank ", of, " of ", size, " did not join in time");
  if (got != DICOMM_OK) return last_error();
  value.assign(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(std::min(length, bytes.size())));
  return {};
}

Status SimCclSession::check_brands(bool serves, Nanos deadline) const {
  const auto publish = [&](const char *key, const std::string &value) -> Status {
    const auto *data = reinterpret_cast<const uint8_t *>(value.data());
    if (dicomm_store_set(store_, concat(key, rank).c_str(), data, value.size()) == DICOMM_OK) return {};
    return last_error();
  };
  DICOMM_TRY(publish("brand/", brand_));
  Status failed;
  for (int peer = 0; peer < size && failed.ok(); ++peer) {
    std::string theirs;
    failed = read("brand/", peer, theirs, deadline);
    if (failed.ok() && theirs != brand_)
      failed = Status::make(DICOMM_CCL_FAILED, library_, " serves chips of ", brand_, ", and rank ", peer,
                            " has one of ", theirs, " (this rank is ", rank, ")");
  }
  if (failed.ok()) return {};
  (void)publish("gone/", "");  // it failed already; a second reason helps nobody
  std::string nothing;
  const Nanos until = deadline_after(kGrace);
  for (int peer = 0; peer < size && serves; ++peer) (void)read("gone/", peer, nothing, until);
  return failed;
}

void SimCclSession::work_begins() {
  std::lock_guard lock(mutex_);
  ++working_;
}

void SimCclSession::work_ended() {
  std::lock_guard lock(mutex_);
  if (--working_ == 0) idle_.notify_all();
}

bool SimCclSession::drain(Nanos deadline) {
  std::unique_lock lock(mutex_);
  const auto idle = [&] { return working_ == 0; };
  if (deadline != kNever)
    return idle_.wait_for(lock, std::chrono::nanoseconds(std::max<Nanos>(deadline - now(), 0)), idle);
  idle_.wait(lock, idle);
  return true;
}

Status SimCclSession::error() const {
  std::lock_guard lock(mutex_);
  return failed_;
}

void SimCclSession::fail(const Status &why) {
  {
    std::lock_guard lock(mutex_);
    if (!failed_.ok()) return;
    failed_ = why;
  }
  dicomm_comm_abort(comm, why.message().c_str());
}

Status SimCclSession::request_error(dicomm_request *request) const {
  dicomm_error error;
  dicomm_request_get_error(request, &error);
  return from_abi(library_, error);
}

Status SimCclSession::last_error() const { return last_abi_error(library_); }

}  // namespace dicomm
