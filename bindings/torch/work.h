// A started operation, and c10d's view of one or several of them.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <ATen/ThreadLocalState.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "completions.h"
#include "dicomm/dicomm.h"

namespace dicomm::torch_plugin {

// One request and what must outlive the call: the tensors, and what is left to do on success.
class Operation : public std::enable_shared_from_this<Operation> {
 public:
  using Task = Completions::Task;

  Operation(std::shared_ptr<Completions> completions, dicomm_request *request,
            std::vector<at::Tensor> tensors, Task epilogue);
  ~Operation();
  Operation(const Operation &) = delete;
  Operation &operator=(const Operation &) = delete;

  bool done() const { return dicomm_request_test(request_) != DICOMM_IN_PROGRESS; }
  // Drives the engine in the calling thread; false when timeout_ns passed first. Runs Python's signal
  // handlers and throws what they raise; the operation goes on.
  bool wait(int64_t timeout_ns);
  // Once done: runs the epilogue if nobody has and returns the failure, or null.
  std::exception_ptr settle();
  // Settles on a completion thread when done and then runs `task` there; keeps the operation alive till then.
  void when_done(Task task);
  // A receive that nothing has matched yet will not match any more.
  void cancel() { dicomm_request_cancel(request_); }
  dicomm_request_info info() const;

 private:
  static void on_complete(void *self, int32_t status);
  void notified();

  const std::shared_ptr<Completions> completions_;
  dicomm_request *const request_;
  std::mutex mutex_;
  std::vector<at::Tensor> tensors_;
  Task epilogue_;
  std::vector<Task> tasks_;  // to run when done
  bool armed_ = false;       // dicomm will call on_complete
  bool notified_ = false;
  bool settled_ = false;
  std::exception_ptr error_;
};

using Operations = std::vector<std::shared_ptr<Operation>>;

// Completes in the waiting thread; on a completion thread only where someone asked for a future, or dropped
// the Work of an operation that still runs.
class Work : public c10d::Work {
 public:
  Work(int rank, c10d::OpType type, const char *title, const std::optional<std::vector<at::Tensor>> &inputs,
       Operations operations, std::vector<at::Tensor> outputs);
  ~Work() override;

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override {}  // nothing is left to order once wait() has returned
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void blockCurrentStream() override { wait(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override;
  const Operations &operations() const { return operations_; }

 private:
  std::exception_ptr conclude();  // once all operations are done

  const Operations operations_;
  std::vector<at::Tensor> outputs_;
  std::mutex conclude_mutex_;
  bool concluded_ = false;
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace dicomm::torch_plugin
