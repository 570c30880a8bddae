#include "process.h"

#include <chrono>

#include "errors.h"
#include "gil.h"

namespace dicomm::torch_plugin {

namespace {
// At the end of the process: for sends that nobody waited for, and for callbacks.
constexpr std::chrono::seconds kExitGrace{5};
}  // namespace

Context::Context(const Settings &settings, const dicomm_chip *chip, const std::string &route_to) {
  dicomm_context_options native{};
  native.size = sizeof(native);
  native.interface = settings.interface.c_str();
  native.route_to = route_to.c_str();
  native.secret = reinterpret_cast<const uint8_t *>(settings.secret.data());
  native.secret_len = settings.secret.size();
  native.sockets_per_peer = settings.sockets_per_peer;
  native.log_level = settings.log_level;
  native.eager_bytes = settings.eager_bytes;
  native.spin_ns = settings.spin_ns;
  native.handshake_timeout_ns = settings.handshake_timeout_ns;
  native.paths = settings.paths.c_str();
  native.rdma = settings.rdma.c_str();
  native.chip = chip;
  check(dicomm_context_create(&native, &handle_));
}

Context::~Context() {
  GilReleased released;
  dicomm_context_close(handle_);
}

void Context::after_fork() {
  completions_->after_fork();
  dicomm_context_after_fork(handle_);
}

Comm::Comm(std::shared_ptr<Context> context, dicomm_comm *handle)
    : context_(std::move(context)), handle_(handle) {}

dicomm_request *Comm::start(const dicomm_op &op) {
  std::shared_lock lock(mutex_);
  if (!handle_) C10_THROW_ERROR(DistBackendError, "dicomm: this process group has been shut down");
  dicomm_request *request = nullptr;
  check(dicomm_start(handle_, &op, &request));
  return request;
}

std::string Comm::info() {
  std::shared_lock lock(mutex_);
  if (!handle_) return "";
  std::string text(dicomm_comm_info(handle_, nullptr, 0) + 1, '\0');
  text.resize(dicomm_comm_info(handle_, text.data(), text.size()));
  return text;
}

void Comm::set_timeout(int64_t timeout_ns) {
  std::shared_lock lock(mutex_);
  if (handle_) dicomm_comm_set_timeout(handle_, timeout_ns);
}

void Comm::abort(const std::string &reason) {
  std::shared_lock lock(mutex_);
  if (handle_) dicomm_comm_abort(handle_, reason.c_str());
}

void Comm::close() {
  GilReleased released;
  std::unique_lock lock(mutex_);
  // A forked child has no part in its parent's groups.
  if (handle_ && !context_->completions()->forked()) dicomm_comm_close(handle_);
  handle_ = nullptr;
}

void Process::use_chip(ChipChoice chip) {
  std::lock_guard lock(mutex_);
  chip_ = chip;
}

std::optional<c10::Device> Process::chip_device() {
  std::lock_guard lock(mutex_);
  return chip_.device;
}

std::shared_ptr<Context> Process::context(const std::string &route_to) {
  std::lock_guard lock(mutex_);
  auto context = context_.lock();
  if (!context) {
    context = std::make_shared<Context>(settings_, chip_.native, route_to);
    context_ = context;
  }
  return context;
}

std::string Process::prefix(const std::string &place, int rank) {
  std::lock_guard lock(mutex_);
  const int generation = generations_[place + "#" + std::to_string(rank)]++;
  return "dicomm/" + settings_.attempt + "/" + std::to_string(generation);
}

void Process::add(const std::shared_ptr<Comm> &comm) {
  std::lock_guard lock(mutex_);
  std::erase_if(comms_, [](const auto &weak) { return weak.expired(); });
  comms_.push_back(comm);
}

std::vector<std::shared_ptr<Comm>> Process::live() {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Comm>> live;
  for (const auto &weak : comms_) {
    if (auto comm = weak.lock()) live.push_back(std::move(comm));
  }
  return live;
}

void Process::abort(const std::string &reason) {
  for (const auto &comm : live()) comm->abort(reason);
}

void Process::close() {
  GilReleased released;
  const auto comms = live();
  const auto end = std::chrono::steady_clock::now() + kExitGrace;
  for (const auto &comm : comms) {
    const std::chrono::nanoseconds left = end - std::chrono::steady_clock::now();
    comm->set_timeout(std::max<int64_t>(left.count(), 1));
    comm->close();
  }
  if (!comms.empty()) comms.front()->completions()->drain(kExitGrace);
}

void Process::after_fork() {
  // Only the forking thread lives on, and it is not inside any call here: the mutex is free or was held by
  // a thread that is gone, so it is not touched.
  if (auto context = context_.lock()) context->after_fork();
  context_.reset();
}

}  // namespace dicomm::torch_plugin
