// A group whose ranks are one island has the vendor's own backend beside dicomm's: tensors on the chip go
// straight to it, and what it returns goes straight to the caller.
#pragma once

#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "process.h"

namespace dicomm::torch_plugin {

class Vendor {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  explicit Vendor(VendorBackend made) : made_(std::move(made)) {}
  ~Vendor();
  Vendor(const Vendor &) = delete;

  // Null unless there is one for this tensor's device. The caller asks it for an operation and passes the
  // work through kept().
  c10d::Backend *of(const at::Tensor &tensor);
  c10d::Backend *of(const std::vector<at::Tensor> &tensors) {
    return tensors.empty() ? nullptr : of(tensors.front());
  }
  c10d::Backend *of(const c10d::BarrierOptions &options) const;
  c10d::Backend *any() const { return made_.backend.get(); }
  WorkPtr kept(WorkPtr work);

  void start_coalescing();
  // What has been started since then and must be waited for.
  std::vector<WorkPtr> end_coalescing();

 private:
  VendorBackend made_;
  bool coalescing_ = false;
  bool its_own_coalescing_ = false;  // the vendor makes one operation of all
  std::vector<WorkPtr> works_;
};

// Several works, of any backends, as one.
class JoinedWork : public c10d::Work {
 public:
  JoinedWork(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> works)
      : c10d::Work(rank, c10d::OpType::COALESCED), works_(std::move(works)) {}

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void blockCurrentStream() override;

 private:
  const std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

}  // namespace dicomm::torch_plugin
