#include "vendor.h"

#include "gil.h"

namespace dicomm::torch_plugin {

Vendor::~Vendor() {
  GilReleased released;  // a backend's end may join threads
  works_.clear();
  made_.backend.reset();
}

c10d::Backend *Vendor::of(const at::Tensor &tensor) {
  if (!made_.backend || !tensor.defined() || tensor.device().type() != made_.type) return nullptr;
  if (coalescing_ && !its_own_coalescing_ && made_.backend->supportsCoalescing()) {
    made_.backend->startCoalescing();
    its_own_coalescing_ = true;
  }
  return made_.backend.get();
}

c10d::Backend *Vendor::of(const c10d::BarrierOptions &options) const {
  return made_.backend && options.device && options.device->type() == made_.type ? made_.backend.get()
                                                                                 : nullptr;
}

Vendor::WorkPtr Vendor::kept(WorkPtr work) {
  // torch drops the works of single operations and waits for the whole.
  if (coalescing_ && !its_own_coalescing_ && work) works_.push_back(work);
  return work;
}

// Ends a batch that an exception left without its end.
void Vendor::start_coalescing() {
  static_cast<void>(end_coalescing());
  coalescing_ = true;
}

std::vector<Vendor::WorkPtr> Vendor::end_coalescing() {
  coalescing_ = false;
  if (std::exchange(its_own_coalescing_, false)) {
    if (auto work = made_.backend->endCoalescing()) works_.push_back(std::move(work));
  }
  return std::exchange(works_, {});
}

bool JoinedWork::isCompleted() {
  return std::ranges::all_of(works_, [](const auto &work) { return work->isCompleted(); });
}

bool JoinedWork::isSuccess() const {
  return std::ranges::all_of(works_, [](const auto &work) { return work->isSuccess(); });
}

std::exception_ptr JoinedWork::exception() const {
  for (const auto &work : works_) {
    if (const auto error = work->exception()) return error;
  }
  return nullptr;
}

std::vector<at::Tensor> JoinedWork::result() {
  std::vector<at::Tensor> all;
  for (const auto &work : works_) {
    const auto some = work->result();
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

void JoinedWork::synchronize() {
  for (const auto &work : works_) work->synchronize();
}

bool JoinedWork::wait(std::chrono::milliseconds timeout) {
  bool all = true;
  for (const auto &work : works_) all = work->wait(timeout) && all;
  return all;
}

void JoinedWork::blockCurrentStream() {
  for (const auto &work : works_) work->blockCurrentStream();
}

}  // namespace dicomm::torch_plugin
