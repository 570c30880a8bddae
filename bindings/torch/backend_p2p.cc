#include "backend.h"
#include "errors.h"

namespace dicomm::torch_plugin {

using c10d::OpType;

namespace {

// torch's tags are ints: above them, the messages of monitored barriers.
constexpr uint64_t kMonitoredBarrierTag = uint64_t{1} << 40;

const at::Tensor &only(const std::vector<at::Tensor> &tensors) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "dicomm: send and recv take one tensor, not ", tensors.size());
  return tensors.front();
}

uint64_t checked_tag(int tag) {
  TORCH_CHECK_VALUE(tag >= 0, "dicomm: tag ", tag, " is negative");
  return static_cast<uint64_t>(tag);
}

Call message(int32_t opcode, int peer, uint64_t tag, int64_t timeout_ns) {
  Call call(opcode);
  call.peer = peer;
  call.tag = tag;
  call.timeout_ns = timeout_ns;
  return call;
}

Call empty_message(int32_t opcode, int peer, uint64_t tag, int64_t timeout_ns) {
  Call call = message(opcode, peer, tag, timeout_ns);
  const auto nothing = at::empty({0}, at::kByte);
  opcode == DICOMM_SEND ? call.input(nothing) : call.output(nothing);
  return call;
}

// Null, or why the operation failed.
std::exception_ptr outcome(Operation &operation) {
  operation.wait(DICOMM_TIMEOUT_NEVER);
  return operation.settle();
}

}  // namespace

Backend::WorkPtr Backend::send(Tensors &tensors, int destination, int tag) {
  if (auto *vendor = vendor_->of(tensors)) return vendor_->kept(vendor->send(tensors, destination, tag));
  const auto &tensor = only(tensors);
  check_rank(destination, "destination");
  Call call = message(DICOMM_SEND, destination, checked_tag(tag), DICOMM_TIMEOUT_DEFAULT);
  call.dtype = move_dtype(tensor);
  call.input(tensor);
  return work({OpType::SEND, "dicomm:send"}, tensors, std::move(call), {});
}

Backend::WorkPtr Backend::receive(Title title, Tensors &tensors, int source, int tag) {
  const auto &tensor = only(tensors);
  Call call = message(DICOMM_RECV, source, checked_tag(tag), DICOMM_TIMEOUT_DEFAULT);
  call.dtype = move_dtype(tensor);
  call.keeps_output = true;  // a message may be shorter
  call.output(tensor);
  return work(title, tensors, std::move(call), tensors);
}

Backend::WorkPtr Backend::recv(Tensors &tensors, int source, int tag) {
  if (auto *vendor = vendor_->of(tensors)) return vendor_->kept(vendor->recv(tensors, source, tag));
  check_rank(source, "source");
  return receive({OpType::RECV, "dicomm:recv"}, tensors, source, tag);
}

Backend::WorkPtr Backend::recvAnysource(Tensors &tensors, int tag) {
  if (auto *vendor = vendor_->of(tensors)) return vendor_->kept(vendor->recvAnysource(tensors, tag));
  return receive({OpType::RECVANYSOURCE, "dicomm:recvAnySource"}, tensors, DICOMM_ANY_SOURCE, tag);
}

// Every rank reports to rank 0, which alone knows who is missing; its answer lets the others pass.
void Backend::monitoredBarrier(const c10d::BarrierOptions &options, bool wait_all_ranks) {
  const auto timeout = options.timeout == c10d::kUnsetTimeout ? options_.timeout : options.timeout;
  const uint64_t tag = kMonitoredBarrierTag + monitored_barriers_++;
  const int64_t timeout_ns = timeout_of(timeout);
  if (getRank() == 0) return gather_barrier_messages(timeout_ns, tag, wait_all_ranks);

  auto report = start(empty_message(DICOMM_SEND, 0, tag, timeout_ns));
  auto answer = start(empty_message(DICOMM_RECV, 0, tag, timeout_ns));
  auto error = outcome(*report);
  if (!error) error = outcome(*answer);
  if (!error) return;
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error &cause) {
    C10_THROW_ERROR(DistBackendError,
                    c10::str("Rank ", getRank(),
                             " successfully reached monitoredBarrier, but received errors while waiting for "
                             "send/recv from rank 0. Please check rank 0 logs for faulty rank. Original "
                             "error: ",
                             cause.what_without_backtrace()));
  }
}

void Backend::gather_barrier_messages(int64_t timeout_ns, uint64_t tag, bool wait_all_ranks) {
  const auto milliseconds = timeout_ns / 1'000'000;
  const auto start_time = std::chrono::steady_clock::now();
  const auto check_time = [&] {
    const std::chrono::nanoseconds spent = std::chrono::steady_clock::now() - start_time;
    if (spent.count() < timeout_ns) return;
    C10_THROW_ERROR(DistBackendError,
                    c10::str("[Rank 0]: Rank 0 timed out in monitoredBarrier after ", milliseconds, " ms."));
  };
  check_time();  // a time-out of zero
  Operations reports;
  for (int rank = 1; rank < getSize(); ++rank) {
    reports.push_back(start(empty_message(DICOMM_RECV, rank, tag, timeout_ns)));
  }
  std::vector<int> missing;
  std::string cause;
  for (int rank = 1; rank < getSize(); ++rank) {
    const auto error = outcome(*reports[rank - 1]);
    if (!error) continue;
    missing.push_back(rank);
    try {
      std::rethrow_exception(error);
    } catch (const c10::Error &failure) {
      if (cause.empty()) cause = failure.what_without_backtrace();
    }
    if (!wait_all_ranks) break;
  }
  if (!missing.empty()) {
    for (const auto &report : reports) report->cancel();
    C10_THROW_ERROR(
        DistBackendError,
        c10::str("[Rank 0]: Rank", missing.size() > 1 ? "s " : " ", c10::Join(", ", missing),
                 " failed to pass monitoredBarrier in ", milliseconds, " ms. Original error: ", cause));
  }
  check_time();
  Operations answers;
  for (int rank = 1; rank < getSize(); ++rank) {
    answers.push_back(start(empty_message(DICOMM_SEND, rank, tag, timeout_ns)));
  }
  for (const auto &answer : answers) {
    if (const auto error = outcome(*answer)) std::rethrow_exception(error);
  }
}

}  // namespace dicomm::torch_plugin
