#include "progress/request.h"

#include "api/guard.h"
#include "base/names.h"
#include "progress/engine.h"

// A dicomm_request is a dicomm::Request; the C name has no definition of its own.

using dicomm::guard;
using dicomm::Request;
using dicomm::Status;
using dicomm::WaitEnd;

namespace {

Request &of(dicomm_request *request) { return *reinterpret_cast<Request *>(request); }

dicomm::Nanos until(int64_t timeout_ns) {
  if (timeout_ns == 0) return 0;
  return timeout_ns < 0 ? dicomm::kNever : dicomm::deadline_after(timeout_ns);
}

// A request that is not done is the parent's in a forked child.
Status ours(const Request &request) {
  if (request.engine == nullptr || !request.engine->forked()) return {};
  return Status::make(DICOMM_NOT_SUPPORTED,
                      "this request belongs to the parent process; a forked child must make its own context");
}

Status wait(Request *const *requests, size_t n, int64_t timeout_ns) {
  DICOMM_TRY(ours(*requests[0]));
  switch (requests[0]->engine->wait(requests, n, until(timeout_ns))) {
    case WaitEnd::done:
      return {};
    case WaitEnd::timed_out:
      return Status::make(DICOMM_IN_PROGRESS, "not complete yet; the operation goes on");
    case WaitEnd::interrupted:
      return Status::make(DICOMM_INTERRUPTED, "a signal arrived while waiting");
  }
  return {};
}

}  // namespace

extern "C" {

dicomm_status dicomm_request_wait(dicomm_request *request, int64_t timeout_ns) {
  return guard([&]() -> Status {
    Request *one = &of(request);
    if (!one->done()) DICOMM_TRY(wait(&one, 1, timeout_ns));
    return one->status();
  });
}

dicomm_status dicomm_request_wait_any(dicomm_request *const *requests, size_t n, int64_t timeout_ns,
                                      size_t *index) {
  return guard([&]() -> Status {
    if (n == 0) return Status::make(DICOMM_INVALID_ARGUMENT, "no request to wait for");
    const auto *all = reinterpret_cast<Request *const *>(requests);
    for (size_t i = 1; i < n; ++i) {
      if (all[i]->engine != all[0]->engine) {
        return Status::make(DICOMM_INVALID_ARGUMENT, "the requests belong to different contexts");
      }
    }
    DICOMM_TRY(wait(all, n, timeout_ns));
    for (*index = 0; !all[*index]->done();) ++*index;
    return {};
  });
}

dicomm_status dicomm_request_test(dicomm_request *request) {
  return guard([&]() -> Status {
    Request *one = &of(request);
    if (!one->done()) DICOMM_TRY(wait(&one, 1, 0));
    return one->status();
  });
}

dicomm_status dicomm_request_notify(dicomm_request *request, void (*fn)(void *, int32_t), void *arg) {
  return guard([&]() -> Status {
    Request &one = of(request);
    if (one.done()) {
      fn(arg, one.status().code());
      return {};
    }
    DICOMM_TRY(ours(one));
    auto lock = one.engine->lock();
    if (one.notify != nullptr)
      return Status::make(DICOMM_INVALID_ARGUMENT, "the request has a callback already");
    if (!one.done()) {
      one.notify = fn;
      one.notify_arg = arg;
      return {};
    }
    lock.unlock();
    fn(arg, one.status().code());
    return {};
  });
}

dicomm_status dicomm_request_cancel(dicomm_request *request) {
  return guard([&]() -> Status {
    Request &one = of(request);
    if (one.opcode > DICOMM_RECV) {
      return Status::make(DICOMM_NOT_SUPPORTED, dicomm::opcode_name(one.opcode),
                          ": collectives cannot be canceled; abort the communicator");
    }
    if (one.done()) return {};
    DICOMM_TRY(ours(one));
    auto lock = one.engine->lock();
    if (!one.done()) one.cancel();
    one.engine->settle();
    return {};
  });
}

void dicomm_request_get_info(dicomm_request *request, dicomm_request_info *out) {
  const Request &one = of(request);
  dicomm_request_info info{};
  info.size = std::min(out->size, sizeof info);
  info.opcode = one.opcode;
  info.source = one.done() ? one.source : -1;
  info.bytes = one.bytes;
  info.seq = one.seq;
  std::memcpy(out, &info, info.size);
}

void dicomm_request_get_error(dicomm_request *request, dicomm_error *out) {
  const Request &one = of(request);
  (one.done() ? one.status() : ours(one)).fill(out);
}

void dicomm_request_free(dicomm_request *request) {
  if (request != nullptr) of(request).release();
}
}
