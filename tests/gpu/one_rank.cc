// Compiled and run by test_gpu.py: memory and streams of an NVIDIA chip, and a group of one rank of its
// library.
//
//   one_rank RUNTIME LIBRARY    the files to open, "" for those that dicomm looks for; ends with "fine"
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

#include "base/clock.h"
#include "ccl/nccl/nccl.h"
#include "device/cuda/device.h"

namespace {

using namespace dicomm;

constexpr int64_t kLimit = 60 * kSecond;
constexpr uint64_t kCount = 1 << 20;
constexpr size_t kBytes = kCount * sizeof(float);

float given(uint64_t i) { return static_cast<float>(i % 1009); }

Status finish(Stream &stream) {
  std::unique_ptr<Event> event;
  DICOMM_TRY(stream.record(event));
  const Nanos deadline = deadline_after(kLimit);
  for (bool done = false; !done; std::this_thread::yield()) {
    DICOMM_TRY(event->query(done));
    if (now() >= deadline) return Status::make(DICOMM_TIMED_OUT, "a stream's work did not end");
  }
  return {};
}

// A chip's memory, two streams and a call between them.
class Bench {
 public:
  explicit Bench(Device &device) : device_(device) {}

  Status open() {
    DICOMM_TRY(device_.make_stream(stream_));
    DICOMM_TRY(device_.make_stream(after_));
    DICOMM_TRY(device_.allocate(kBytes, input_));
    DICOMM_TRY(device_.allocate(kBytes, output_));
    DICOMM_TRY(device_.allocate_pinned(2 * kBytes, host_));
    if (!device_.owns(input_->data()) || device_.owns(host_->data()))
      return Status::make(DICOMM_INTERNAL, "the chip does not tell its memory from the host's");
    return {};
  }

  // call(input, output, stream): starts behind copies to the chip, and its result leaves by another stream
  // behind an event. The result is `factor` times the input.
  template <class Call>
  Status check(const char *what, float factor, Call call) {
    float *const from = static_cast<float *>(host_->data()), *const to = from + kCount;
    std::memset(host_->data(), 0, 2 * kBytes);
    DICOMM_TRY(stream_->copy_to_device(output_->data(), to, kBytes));
    DICOMM_TRY(finish(*stream_));
    for (uint64_t i = 0; i < kCount; ++i) from[i] = given(i);
    DICOMM_TRY(stream_->copy_to_device(input_->data(), from, kBytes));
    DICOMM_TRY(call(input_->data(), output_->data(), *stream_));
    std::unique_ptr<Event> event;
    DICOMM_TRY(stream_->record(event));
    DICOMM_TRY(after_->wait(*event));
    DICOMM_TRY(after_->copy_to_host(to, output_->data(), kBytes));
    DICOMM_TRY(finish(*after_));
    for (uint64_t i = 0; i < kCount; ++i)
      if (to[i] != factor * given(i))
        return Status::make(DICOMM_INTERNAL, what, ": element ", i, " is ", to[i], ", not ",
                            factor * given(i));
    std::printf("%s: as expected\n", what);
    return {};
  }

 private:
  Device &device_;
  std::unique_ptr<Stream> stream_, after_;
  std::unique_ptr<Allocation> input_, output_, host_;
};

Status operations(Device &device, CclGroup &group, bool scales) {
  constexpr auto kType = DICOMM_FLOAT32;
  Bench bench(device);
  DICOMM_TRY(bench.open());
  DICOMM_TRY(bench.check("copy", 1, [](const void *in, void *out, Stream &stream) {
    return stream.copy_on_device(out, in, kBytes);
  }));
  DICOMM_TRY(bench.check("allreduce", 1, [&](const void *in, void *out, Stream &stream) {
    return group.allreduce(in, out, kCount, kType, DICOMM_SUM, stream);
  }));
  const float factor = 3;
  if (scales) {
    DICOMM_TRY(group.set_factor(&factor, kType));
    DICOMM_TRY(bench.check("premul_sum", factor, [&](const void *in, void *out, Stream &stream) {
      return group.allreduce(in, out, kCount, kType, DICOMM_PREMUL_SUM, stream);
    }));
  }
  DICOMM_TRY(bench.check("reduce", 1, [&](const void *in, void *out, Stream &stream) {
    return group.reduce(in, out, kCount, kType, DICOMM_SUM, 0, stream);
  }));
  DICOMM_TRY(bench.check("reduce_scatter", 1, [&](const void *in, void *out, Stream &stream) {
    return group.reduce_scatter(in, out, kCount, kType, DICOMM_SUM, stream);
  }));
  DICOMM_TRY(bench.check("allgather", 1, [&](const void *in, void *out, Stream &stream) {
    return group.allgather(in, out, kCount, kType, stream);
  }));
  return bench.check("broadcast", 1, [&](const void *in, void *out, Stream &stream) {
    return group.broadcast(in, out, kCount, kType, 0, stream);
  });
}

Status run(const CudaMember &row, const nccl::Member &member) {
  std::unique_ptr<Device> device;
  DICOMM_TRY(CudaDevice::open(row, 0, device));
  std::unique_ptr<Ccl> library;
  DICOMM_TRY(open_nccl(member, library));
  std::printf("device: %s\nlibrary: %s\n", device->describe().c_str(), library->describe().c_str());
  CclId id;
  DICOMM_TRY(device->with_current([&] { return library->make_id(id); }));
  std::unique_ptr<CclGroup> group;
  DICOMM_TRY(library->join(id, 0, 1, *device, kLimit, group));
  const bool scales = library->capabilities().reduces(DICOMM_FLOAT32, DICOMM_PREMUL_SUM);
  DICOMM_TRY(operations(*device, *group, scales));
  DICOMM_TRY(group->async_error());
  DICOMM_TRY(group->close(kLimit));
  group.reset();
  return device->close(kLimit);
}

}  // namespace

int main(int count, char **arguments) {
  if (count != 3) return 2;
  CudaMember row = *find_cuda_member("nvidia");
  nccl::Member member = nccl::members().front();
  if (arguments[1][0] != 0) row.files = {arguments[1]};
  if (arguments[2][0] != 0) member.files = {arguments[2]};
  const Status status = run(row, member);
  std::printf("%s\n", status.ok() ? "fine" : status.message().c_str());
  return status.ok() ? 0 : 1;
}
