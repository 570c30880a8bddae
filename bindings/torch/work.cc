#include "work.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "errors.h"
#include "gil.h"

namespace dicomm::torch_plugin {

namespace {

// A signal interrupts a sleeping wait at once. One that comes just before the thread sleeps leaves only
// Python's note of it, which is therefore looked at now and then.
constexpr int64_t kSignalCheck = 500'000'000;

// The only one in which Python runs signal handlers.
bool is_main_thread() { return syscall(SYS_gettid) == getpid(); }

int64_t nanoseconds_of(std::chrono::milliseconds timeout) {
  return timeout <= kNoTimeout ? int64_t{DICOMM_TIMEOUT_NEVER} : std::chrono::nanoseconds(timeout).count();
}

// Not the CPU: where a future must look for streams.
std::vector<c10::Device> devices_of(const std::vector<at::Tensor> &tensors) {
  std::vector<c10::Device> devices;
  for (const auto &tensor : tensors) {
    const auto device = tensor.device();
    if (!device.is_cpu() && std::ranges::find(devices, device) == devices.end()) devices.push_back(device);
  }
  return devices;
}

}  // namespace

Operation::Operation(std::shared_ptr<Completions> completions, dicomm_request *request,
                     std::vector<at::Tensor> tensors, Task epilogue)
    : completions_(std::move(completions)),
      request_(request),
      tensors_(std::move(tensors)),
      epilogue_(std::move(epilogue)) {}

Operation::~Operation() {
  // In a forked child the engine's lock may have been held by a thread that does not exist here.
  if (!completions_->forked()) dicomm_request_free(request_);
}

bool Operation::wait(int64_t timeout_ns) {
  const auto start = std::chrono::steady_clock::now();
  int64_t left = timeout_ns;
  while (true) {
    const int64_t piece = timeout_ns < 0 ? kSignalCheck : std::min(left, kSignalCheck);
    const auto status = dicomm_request_wait(request_, piece);
    if (status != DICOMM_IN_PROGRESS && status != DICOMM_INTERRUPTED) return true;
    if (is_main_thread()) check_signals();
    if (timeout_ns < 0) continue;
    const std::chrono::nanoseconds spent = std::chrono::steady_clock::now() - start;
    left = timeout_ns - spent.count();
    if (left <= 0) return done();
  }
}

std::exception_ptr Operation::settle() {
  std::vector<at::Tensor> tensors;  // freed without the mutex: that may take the interpreter lock
  Task epilogue;
  std::lock_guard lock(mutex_);
  if (settled_) return error_;
  if (dicomm_request_test(request_) != DICOMM_OK) {
    dicomm_error error{};
    dicomm_request_get_error(request_, &error);
    error_ = exception_of(error);
  } else if (epilogue_) {
    at::NoGradGuard no_grad;
    try {
      epilogue_();
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  epilogue.swap(epilogue_);
  tensors.swap(tensors_);
  settled_ = true;
  return error_;
}

void Operation::when_done(Task task) {
  std::unique_lock lock(mutex_);
  if (notified_) {
    lock.unlock();
    return completions_->submit(std::move(task));
  }
  tasks_.push_back(std::move(task));
  if (std::exchange(armed_, true)) return;
  lock.unlock();
  auto self = std::make_unique<std::shared_ptr<Operation>>(shared_from_this());
  check(dicomm_request_notify(request_, &Operation::on_complete, self.get()));
  self.release();  // on_complete owns it
}

// On the thread that completes the request, which must not block: Python may be needed to free a tensor.
void Operation::on_complete(void *arg, int32_t) {
  std::unique_ptr<std::shared_ptr<Operation>> self(static_cast<std::shared_ptr<Operation> *>(arg));
  const auto completions = (*self)->completions_;  // the task may drop all else that holds it
  completions->submit([operation = std::move(*self)] { operation->notified(); });
}

void Operation::notified() {
  settle();
  std::vector<Task> tasks;
  {
    std::lock_guard lock(mutex_);
    notified_ = true;
    tasks.swap(tasks_);
  }
  for (const auto &task : tasks) task();
}

dicomm_request_info Operation::info() const {
  dicomm_request_info info{};
  info.size = sizeof(info);
  dicomm_request_get_info(request_, &info);
  return info;
}

Work::Work(int rank, c10d::OpType type, const char *title,
           const std::optional<std::vector<at::Tensor>> &inputs, Operations operations,
           std::vector<at::Tensor> outputs)
    : c10d::Work(rank, type, title, inputs),
      operations_(std::move(operations)),
      outputs_(std::move(outputs)) {}

Work::~Work() {
  // A dropped Work's operation still happens, and its buffers live until then.
  if (concluded_) return;
  for (const auto &operation : operations_) {
    if (operation->done()) {
      operation->settle();
    } else {
      operation->when_done([] {});
    }
  }
}

bool Work::isCompleted() {
  for (const auto &operation : operations_) {
    if (!operation->done()) return false;
  }
  conclude();
  return true;
}

bool Work::isSuccess() const { return const_cast<Work *>(this)->isCompleted() && !exception_; }

std::exception_ptr Work::exception() const {
  return const_cast<Work *>(this)->isCompleted() ? exception_ : nullptr;
}

int Work::sourceRank() const {
  TORCH_CHECK(opType_ == c10d::OpType::RECV || opType_ == c10d::OpType::RECVANYSOURCE,
              "sourceRank() may only be called on the work of a receive");
  return operations_.front()->info().source;
}

uint64_t Work::getSequencenumber() const {
  return operations_.empty() ? 0 : static_cast<uint64_t>(operations_.front()->info().seq);
}

bool Work::wait(std::chrono::milliseconds timeout) {
  GilReleased released;
  const auto start = std::chrono::steady_clock::now();
  const int64_t limit = nanoseconds_of(timeout);
  for (const auto &operation : operations_) {
    int64_t left = limit;
    if (limit >= 0) {
      const std::chrono::nanoseconds spent = std::chrono::steady_clock::now() - start;
      left = std::max<int64_t>(limit - spent.count(), 0);
    }
    if (!operation->wait(left)) {
      C10_THROW_ERROR(DistBackendError, c10::str("dicomm: wait() Timed out after ", timeout.count(),
                                                 "ms; the operation goes on and may be waited for again"));
    }
  }
  if (const auto error = conclude()) std::rethrow_exception(error);
  return true;
}

std::exception_ptr Work::conclude() {
  GilReleased released;  // a thread that holds both locks in turn must not meet one that takes them otherwise
  std::lock_guard lock(conclude_mutex_);
  if (concluded_) return exception_;
  std::exception_ptr first;
  for (const auto &operation : operations_) {
    const auto error = operation->settle();
    if (!first) first = error;
  }
  finish(first);
  concluded_ = true;
  return first;
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture() {
  std::lock_guard lock(future_mutex_);
  if (future_) return future_;
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                     devices_of(outputs_));
  // What the last operation to complete needs; the Work itself may be gone by then.
  struct Pending {
    std::atomic<size_t> left;
    Operations operations;
    std::vector<at::Tensor> outputs;
    at::ThreadLocalState state;
    c10::intrusive_ptr<c10::ivalue::Future> future;
  };
  auto pending = std::make_shared<Pending>();
  pending->left = operations_.size();
  pending->operations = operations_;
  pending->outputs = outputs_;
  pending->future = future_;
  auto step = [pending] {
    if (--pending->left != 0) return;
    at::ThreadLocalStateGuard state(pending->state);
    for (const auto &operation : pending->operations) {
      if (const auto error = operation->settle()) return pending->future->setError(error);
    }
    pending->future->markCompleted(c10::IValue(std::move(pending->outputs)));
  };
  for (const auto &operation : operations_) operation->when_done(step);
  if (operations_.empty()) future_->markCompleted(c10::IValue(outputs_));
  return future_;
}

}  // namespace dicomm::torch_plugin
