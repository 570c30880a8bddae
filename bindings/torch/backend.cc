#include "backend.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "errors.h"
#include "gil.h"
#include "store.h"

namespace dicomm::torch_plugin {

int64_t timeout_of(std::chrono::milliseconds timeout) {
  if (timeout < std::chrono::milliseconds::zero()) return DICOMM_TIMEOUT_DEFAULT;
  // dicomm knows no zero: one nanosecond has passed as soon as anybody looks.
  return std::max<int64_t>(std::chrono::nanoseconds(timeout).count(), 1);
}

void Call::input(const at::Tensor &tensor) {
  check_input(tensor);
  inputs.push_back(resolved(tensor));
}

void Call::output(const at::Tensor &tensor) {
  check_output(tensor);
  outputs.push_back(tensor);
}

Backend::Backend(std::shared_ptr<Process> process, c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                 const Options &options)
    : c10d::Backend(rank, size),
      process_(std::move(process)),
      options_("dicomm", options.timeout),
      chip_(process_->chip_device()) {
  options_.group_name = options.group_name;
  options_.global_ranks_in_group = options.global_ranks_in_group;
  store = without_device_prefix(store);
  const auto context = process_->context(host(store));
  WrappedStore wrapped(store);
  const int64_t timeout_ns = timeout_of(options_.timeout);
  dicomm_comm_options native{};
  native.size = sizeof(native);
  native.name = options_.group_name.c_str();
  native.timeout_ns = timeout_ns;
  native.init_timeout_ns = timeout_ns;
  native.algorithms = process_->settings().algorithms.c_str();
  native.wire_dtype = process_->settings().wire_dtype;
  dicomm_comm *handle = nullptr;
  const auto prefix = process_->prefix(identity(store), rank);
  const auto status =
      dicomm_comm_create(context->handle(), wrapped.handle(), prefix.c_str(), rank, size, &native, &handle);
  if (status != DICOMM_OK) {
    const auto failure = wrapped.failure();
    throw_last_error(failure.empty() ? "" : "The store said: " + failure);
  }
  comm_ = std::make_shared<Comm>(context, handle);
  process_->add(comm_);
  vendor_.emplace(
      process_->vendor_backend({.store = c10::make_intrusive<c10d::PrefixStore>(prefix + "/vendor", store),
                                .rank = rank,
                                .size = size,
                                .timeout = options_.timeout,
                                .name = options_.group_name,
                                .global_ranks = options_.global_ranks_in_group,
                                .info = [this] { return comm_->info(); }}));
}

c10::intrusive_ptr<c10d::Backend::Options> Backend::getBackendOptions() {
  return c10::make_intrusive<GroupOptions>(options_);
}

void Backend::setTimeout(std::chrono::milliseconds timeout) {
  options_.timeout = timeout;
  comm_->set_timeout(timeout_of(timeout));
  if (auto *vendor = vendor_->any()) vendor->setTimeout(timeout);
}

void Backend::eagerConnectSingleDevice(at::Device device) {
  if (auto *vendor = vendor_->any()) vendor->eagerConnectSingleDevice(device);
}

void Backend::abort() {
  comm_->abort("abort() was called on its process group");
  if (auto *vendor = vendor_->any()) vendor->abort();
}

void Backend::shutdown() {
  if (auto *vendor = vendor_->any()) vendor->shutdown();
  comm_->close();
}

c10::intrusive_ptr<c10d::Backend> Backend::split(const c10::intrusive_ptr<c10d::Store> &store,
                                                 const std::vector<int> &ranks,
                                                 const c10::intrusive_ptr<Options> &options) {
  const auto self = std::find(ranks.begin(), ranks.end(), getRank());
  TORCH_CHECK_VALUE(self != ranks.end(), "dicomm: rank ", getRank(), " is not in the group to be split off");
  // torch asks once for every device type, keeps the first answer and drops the others: with a vendor's
  // backend whose connections end with it, while other ranks are still making theirs.
  const auto place = identity(without_device_prefix(store));
  if (auto last = last_split_.lock(); last && last_split_place_ == place) return last;
  c10::intrusive_ptr<c10d::Backend> made =
      c10::make_intrusive<Backend>(process_, store, static_cast<int>(self - ranks.begin()),
                                   static_cast<int>(ranks.size()), options ? *options : options_);
  last_split_ = c10::weak_intrusive_ptr<c10d::Backend>(made);
  last_split_place_ = place;
  return made;
}

std::shared_ptr<Operation> Backend::start(Call call) {
  Placement placement(chip_);
  Tensors memory;  // what dicomm reads and writes, alive until completion
  Blocks send, recv;
  for (const auto &tensor : call.inputs) send.add(memory.emplace_back(placement.readable(tensor)));
  for (const auto &tensor : call.outputs) {
    recv.add(memory.emplace_back(placement.writable(tensor, call.in_place || call.keeps_output)));
  }
  dicomm_op op{};
  op.size = sizeof(op);
  op.opcode = call.opcode;
  op.dtype = call.dtype;
  op.peer = call.peer;
  op.tag = call.tag;
  op.timeout_ns = call.timeout_ns;
  op.stream = placement.stream();
  if (!call.gives_buffer) (call.in_place ? recv : send).give(op.send, op.nsend);
  (call.gives_buffer ? send : recv).give(op.recv, op.nrecv);
  if (call.reduction) call.reduction->apply(op);
  auto *request = comm_->start(op);
  if (op.opcode != DICOMM_SEND && op.opcode != DICOMM_RECV) ++sequence_;
  if (placement.writes_back() || call.epilogue) {
    call.epilogue = [placement = std::move(placement), task = std::move(call.epilogue)] {
      placement.finish(task);
    };
  }
  return std::make_shared<Operation>(comm_->completions(), request, std::move(memory),
                                     std::move(call.epilogue));
}

Backend::WorkPtr Backend::work(Title title, const Tensors &inputs, Operations operations, Tensors outputs) {
  if (coalescing_) {
    coalesced_.insert(coalesced_.end(), operations.begin(), operations.end());
    coalesced_outputs_.insert(coalesced_outputs_.end(), outputs.begin(), outputs.end());
  }
  return c10::make_intrusive<Work>(getRank(), title.type, title.text, inputs, std::move(operations),
                                   std::move(outputs));
}

Backend::WorkPtr Backend::work(Title title, const Tensors &inputs, Call call, Tensors outputs) {
  Operations operations{start(std::move(call))};
  return work(title, inputs, std::move(operations), std::move(outputs));
}

// Forgets a batch that an exception left without its end.
void Backend::startCoalescing() {
  coalesced_.clear();
  coalesced_outputs_.clear();
  coalescing_ = true;
  vendor_->start_coalescing();
}

// Operations start when they are called; coalescing only makes one Work of them.
Backend::WorkPtr Backend::endCoalescing() {
  TORCH_CHECK(coalescing_, "dicomm: endCoalescing() without startCoalescing()");
  coalescing_ = false;
  Operations operations;
  Tensors outputs;
  operations.swap(coalesced_);
  outputs.swap(coalesced_outputs_);
  auto works = vendor_->end_coalescing();
  if (!operations.empty() || works.empty()) {
    works.push_back(c10::make_intrusive<Work>(getRank(), c10d::OpType::COALESCED, "dicomm:coalesced",
                                              std::nullopt, std::move(operations), std::move(outputs)));
  }
  if (works.size() == 1) return works.front();
  return c10::make_intrusive<JoinedWork>(getRank(), std::move(works));
}

void Backend::check_rank(int64_t rank, const char *what) const {
  TORCH_CHECK_VALUE(rank >= 0 && rank < getSize(), "dicomm: ", what, " ", rank, " is not in [0, ", getSize(),
                    ")");
}

}  // namespace dicomm::torch_plugin
