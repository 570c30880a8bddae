// Streams and events of run times with CUDA's interface.
#pragma once

#include <memory>

#include "device/cuda/device.h"

namespace dicomm {

// A stream knows its chip, so most calls need no current device; the default stream is the current one's.
class CudaStream final : public Stream {
 public:
  CudaStream(std::shared_ptr<CudaChip> chip, void *stream, bool owned)
      : chip_(std::move(chip)), stream_(stream), owned_(owned) {}
  ~CudaStream() override;

  Status copy_to_host(void *host, const void *device, size_t bytes) override;
  Status copy_to_device(void *device, const void *host, size_t bytes) override;
  Status copy_on_device(void *dst, const void *src, size_t bytes) override;
  // No kernels of ours run on these chips.
  Status reduce(const Arithmetic &arithmetic, void *dst, Form dst_form, const void *a, Form a_form,
                const void *b, Form b_form, uint64_t count, bool finish) override;
  Status copy_convert(const Arithmetic &arithmetic, void *dst, Form dst_form, const void *a, Form a_form,
                      uint64_t count, bool finish) override;
  Status record(std::unique_ptr<Event> &out) override;
  Status wait(const Event &event) override;
  Status notify(void (*fn)(void *arg), void *arg) override;
  void *native() const override { return stream_; }

 private:
  Status copy(void *dst, const void *src, size_t bytes, int kind);
  template <class Call>
  Status on_chip(const char *what, Call call);

  const std::shared_ptr<CudaChip> chip_;
  void *const stream_;
  const bool owned_;
};

}  // namespace dicomm
