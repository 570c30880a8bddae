// Contract: the memory of this process's chip as payloads of messages, for endpoints that carry it.
//
// The processors may not be able to read it. A network card that can, reads and writes it by itself; when the
// card fails under way, the endpoint moves the bytes through the host's memory with the copies below.
#pragma once

#include <functional>
#include <memory>

#include "device/device.h"

namespace dicomm {

class ChipMemory {
 public:
  // Host memory that the chip copies from and to; a copy holds it until that is over.
  using Bounce = std::shared_ptr<std::byte>;
  using Done = std::function<void(const Status &)>;

  virtual Device &device() = 0;
  // Null when there is none. May block while the vendor allocates.
  virtual Bounce bounce(size_t bytes) = 0;
  // Start a copy of the whole bounce and return. `done` is called once, from inside Reactor::dispatch, if
  // `listener` still exists then. Copies start behind the work that operations on this memory wait for, and
  // run in the order of the calls. A failure: `done` is not called.
  virtual Status to_host(Bounce into, const std::byte *from, size_t bytes, std::weak_ptr<void> listener,
                         Done done) = 0;
  virtual Status to_chip(std::byte *into, Bounce from, size_t bytes, std::weak_ptr<void> listener,
                         Done done) = 0;

 protected:
  ~ChipMemory() = default;
};

}  // namespace dicomm
