// Streams and events on the host's processors.
#pragma once

#include <memory>

#include "device/processor/device.h"

namespace dicomm {

class ProcessorStream final : public Stream {
 public:
  // owned: one of ours, whose end waits for its work.
  ProcessorStream(std::shared_ptr<ProcessorChip> chip, std::shared_ptr<WorkQueue> queue, bool owned)
      : chip_(std::move(chip)), queue_(std::move(queue)), owned_(owned) {}
  ~ProcessorStream() override;

  Status copy_to_host(void *host, const void *device, size_t bytes) override;
  Status copy_to_device(void *device, const void *host, size_t bytes) override;
  Status copy_on_device(void *dst, const void *src, size_t bytes) override;
  Status reduce(const Arithmetic &arithmetic, void *dst, Form dst_form, const void *a, Form a_form,
                const void *b, Form b_form, uint64_t count, bool finish) override;
  Status copy_convert(const Arithmetic &arithmetic, void *dst, Form dst_form, const void *a, Form a_form,
                      uint64_t count, bool finish) override;
  Status record(std::unique_ptr<Event> &out) override;
  Status wait(const Event &event) override;
  Status notify(void (*fn)(void *arg), void *arg) override;
  void *native() const override { return queue_.get(); }

 private:
  Status copy(void *dst, const void *src, size_t bytes, CopyWay way);

  std::shared_ptr<ProcessorChip> chip_;
  std::shared_ptr<WorkQueue> queue_;
  bool owned_;
};

}  // namespace dicomm
