// The c10d backend: each call becomes one or several dicomm operations on the caller's tensors.
//
// Collectives must be called in the same order on every rank of a group; calls on one group come from one
// thread at a time, as everywhere in torch.distributed. Waiting, abort and shutdown are free of that rule.
#pragma once

#include <atomic>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "device.h"
#include "process.h"
#include "tensors.h"
#include "vendor.h"
#include "work.h"

namespace dicomm::torch_plugin {

// One operation to start.
struct Call {
  explicit Call(int32_t opcode) : opcode(opcode) {}

  int32_t opcode;
  int32_t dtype = DICOMM_UINT8;
  int32_t peer = 0;
  uint64_t tag = 0;
  int64_t timeout_ns = DICOMM_TIMEOUT_DEFAULT;
  const Reduction *reduction = nullptr;
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> outputs;
  bool in_place = false;      // what is received into is also what is sent
  bool gives_buffer = false;  // the root of a broadcast: the input is the buffer, and stays as it is
  bool keeps_output = false;  // elements that do not arrive stay as they are
  Operation::Task epilogue;   // runs on success

  void input(const at::Tensor &tensor);
  void output(const at::Tensor &tensor);
};

// split_group copies options with copy.deepcopy, for which module.cc gives this class, not the base, a
// method.
struct GroupOptions : c10d::Backend::Options {
  using c10d::Backend::Options::Options;
};

class Backend : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<std::vector<at::Tensor>>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  // Blocks until all ranks have come. `store` is as torch hands it to a backend's creator.
  Backend(std::shared_ptr<Process> process, c10::intrusive_ptr<c10d::Store> store, int rank, int size,
          const Options &options);

  const std::string getBackendName() const override { return "dicomm"; }
  // A copy: ProcessGroup::splitGroup writes the new group's name into what it gets here.
  c10::intrusive_ptr<Options> getBackendOptions() override;
  bool supportsCoalescing() const override { return true; }
  bool supportsSplitting() const override { return true; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setSequenceNumberForGroup() override { sequence_ = 0; }
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store> &store,
                                          const std::vector<int> &ranks,
                                          const c10::intrusive_ptr<Options> &options) override;
  void eagerConnectSingleDevice(at::Device device) override;
  void abort() override;
  void shutdown() override;

  WorkPtr broadcast(Tensors &tensors, const c10d::BroadcastOptions &options) override;
  WorkPtr allreduce(Tensors &tensors, const c10d::AllreduceOptions &options) override;
  WorkPtr allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &options) override;
  WorkPtr allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &options) override;
  WorkPtr reduce(Tensors &tensors, const c10d::ReduceOptions &options) override;
  WorkPtr allgather(TensorLists &outputs, Tensors &inputs, const c10d::AllgatherOptions &options) override;
  WorkPtr _allgather_base(at::Tensor &output, at::Tensor &input,
                          const c10d::AllgatherOptions &options) override;
  WorkPtr allgather_coalesced(TensorLists &outputs, Tensors &inputs,
                              const c10d::AllgatherOptions &options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                          const c10d::AllgatherOptions &options) override;
  WorkPtr gather(TensorLists &outputs, Tensors &inputs, const c10d::GatherOptions &options) override;
  WorkPtr scatter(Tensors &outputs, TensorLists &inputs, const c10d::ScatterOptions &options) override;
  WorkPtr reduce_scatter(Tensors &outputs, TensorLists &inputs,
                         const c10d::ReduceScatterOptions &options) override;
  WorkPtr _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                               const c10d::ReduceScatterOptions &options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                          const c10d::ReduceScatterOptions &options) override;
  WorkPtr alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_splits,
                        std::vector<int64_t> &input_splits, const c10d::AllToAllOptions &options) override;
  WorkPtr alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &options) override;
  WorkPtr send(Tensors &tensors, int destination, int tag) override;
  WorkPtr recv(Tensors &tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors &tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions &options) override;
  void monitoredBarrier(const c10d::BarrierOptions &options, bool wait_all_ranks) override;

 private:
  struct Title {
    c10d::OpType type;
    const char *text;  // profiler event
  };

  std::shared_ptr<Operation> start(Call call);
  // `inputs` are what the profiler shows.
  WorkPtr work(Title title, const Tensors &inputs, Operations operations, Tensors outputs);
  WorkPtr work(Title title, const Tensors &inputs, Call call, Tensors outputs);
  std::shared_ptr<Operation> start_allreduce(const at::Tensor &tensor, const c10d::AllreduceOptions &options);
  std::shared_ptr<Operation> start_allgather(const at::Tensor &output, const at::Tensor &input,
                                             const c10d::AllgatherOptions &options);
  std::shared_ptr<Operation> start_allgather(const Tensors &outputs, const at::Tensor &input,
                                             const c10d::AllgatherOptions &options);
  std::shared_ptr<Operation> start_reduce_scatter(const at::Tensor &output, const at::Tensor &input,
                                                  const c10d::ReduceScatterOptions &options);
  WorkPtr receive(Title title, Tensors &tensors, int source, int tag);
  void gather_barrier_messages(int64_t timeout_ns, uint64_t tag, bool wait_all_ranks);
  void check_rank(int64_t rank, const char *what) const;

  std::shared_ptr<Process> process_;
  GroupOptions options_;
  const std::optional<c10::Device> chip_;
  std::shared_ptr<Comm> comm_;
  std::optional<Vendor> vendor_;
  c10::weak_intrusive_ptr<c10d::Backend> last_split_{c10::intrusive_ptr<c10d::Backend>()};
  std::string last_split_place_;       // in the store
  std::atomic<uint64_t> sequence_{0};  // collectives started
  uint64_t monitored_barriers_ = 0;
  bool coalescing_ = false;
  Operations coalesced_;
  Tensors coalesced_outputs_;
};

// -1 ms means the group's time-out; 0 is a real zero.
int64_t timeout_of(std::chrono::milliseconds timeout);

}  // namespace dicomm::torch_plugin
