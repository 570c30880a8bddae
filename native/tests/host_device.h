// A Device for tests of libraries that need one of a certain vendor: host memory, and streams that do their
// work at once.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "device/device.h"

namespace dicomm::test {

class HostDevice final : public Device {
 public:
  explicit HostDevice(std::string vendor, int index = 0) : vendor_(std::move(vendor)), index_(index) {}

  // The index that is current on this thread; -1 outside of with_current.
  static int &current() {
    thread_local int index = -1;
    return index;
  }

  const char *vendor() const override { return vendor_.c_str(); }
  int index() const override { return index_; }
  std::string describe() const override { return "host memory as a chip of " + vendor_; }
  DeviceCapabilities capabilities() const override { return {}; }
  Status allocate(size_t bytes, std::unique_ptr<Allocation> &out) override {
    out = std::make_unique<Memory>(bytes);
    return {};
  }
  Status allocate_pinned(size_t bytes, std::unique_ptr<Allocation> &out) override {
    return allocate(bytes, out);
  }
  bool owns(const void *) const override { return true; }
  Status with_current(const std::function<Status()> &body) override {
    const int before = std::exchange(current(), index_);
    Status status = body();
    current() = before;
    return status;
  }
  Status make_stream(std::unique_ptr<Stream> &out) override {
    out = std::make_unique<Queue>();
    return {};
  }
  Status wrap(void *, std::unique_ptr<Stream> &) override { return unsupported(); }
  Status export_dmabuf(const void *, size_t, DmaBuf &) override { return unsupported(); }
  Status close(int64_t) override { return {}; }

 private:
  static Status unsupported() { return Status::make(DICOMM_NOT_SUPPORTED, "not on a test's device"); }

  struct Memory final : Allocation {
    explicit Memory(size_t bytes) : bytes_(bytes), data_(std::malloc(bytes + 1)) {}
    ~Memory() override { std::free(data_); }
    void *data() const override { return data_; }
    size_t size() const override { return bytes_; }

   private:
    size_t bytes_;
    void *data_;
  };

  struct Done final : Event {
    Status query(bool &done) override {
      done = true;
      return {};
    }
  };

  struct Queue final : Stream {
    Status copy(void *to, const void *from, size_t bytes) {
      std::memmove(to, from, bytes);
      return {};
    }
    Status copy_to_host(void *to, const void *from, size_t n) override { return copy(to, from, n); }
    Status copy_to_device(void *to, const void *from, size_t n) override { return copy(to, from, n); }
    Status copy_on_device(void *to, const void *from, size_t n) override { return copy(to, from, n); }
    Status reduce(const Arithmetic &, void *, Form, const void *, Form, const void *, Form, uint64_t,
                  bool) override {
      return unsupported();
    }
    Status copy_convert(const Arithmetic &, void *, Form, const void *, Form, uint64_t, bool) override {
      return unsupported();
    }
    Status record(std::unique_ptr<Event> &out) override {
      out = std::make_unique<Done>();
      return {};
    }
    Status wait(const Event &) override { return {}; }
    void *native() const override { return const_cast<Queue *>(this); }
    Status notify(void (*fn)(void *), void *arg) override {
      fn(arg);
      return {};
    }
  };

  std::string vendor_;
  int index_;
};

}  // namespace dicomm::test
