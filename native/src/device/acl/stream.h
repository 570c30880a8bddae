// Streams and events of Ascend chips.
#pragma once

#include <memory>

#include "device/acl/device.h"

namespace dicomm {

class AclStream final : public Stream {
 public:
  AclStream(std::shared_ptr<AclChip> chip, void *stream, bool owned)
      : chip_(std::move(chip)), stream_(stream), owned_(owned) {}
  ~AclStream() override;

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
  Status follow();

  const std::shared_ptr<AclChip> chip_;
  void *const stream_;
  const bool owned_;
  // Notices leave from a stream of our own behind this one: somebody else may be subscribed to a wrapped
  // stream, and one stream reports to one thread only.
  std::mutex mutex_;
  void *notices_ = nullptr;
};

}  // namespace dicomm
