// Contract: the memory and streams of one chip, under one table for all vendors.
//
// The transports move host memory; what they need of a chip is to get bytes into and out of it, to order
// those copies with the trainer's kernels, and, for device-direct RDMA, a handle a network card can register.
// A vendor's run time is opened with dlopen when its Device is made, never linked. Its calls stand in one
// file per vendor and are mapped to Status there, with the vendor's code kept in Failure::foreign_code.
//
// Operations on host memory use device/host directly and no Device: there is nothing to open, order or
// export. sim is an implementation for chips that do not exist.
//
// Threads: every function may be called from any thread, several at a time on one Device, but for close. Each
// sets the vendor's current device for itself and puts the caller's back before it returns. Calls marked "may
// block" are made without the engine lock, which would hold up every other operation; but for the pinned
// memory and the registrations that a message on a chip needs when it is under way already.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/error.h"
#include "device/host/kernels.h"

namespace dicomm {

// What a chip can do beyond copying. A test of a missing capability is skipped with this flag as its reason.
struct DeviceCapabilities {
  bool reduces = false;           // reduce() and copy_convert() run on the chip
  bool exports_dmabuf = false;    // export_dmabuf()
  bool maps_peers = false;        // processes of one host can open one another's allocations
  bool sees_card_writes = false;  // see_card_writes() can be relied on
  bool unified = false;           // the processors read and write its memory as their own
};

// A point in a stream's work. Owned by the caller; may be destroyed while it is pending.
class Event {
 public:
  virtual ~Event() = default;
  // Has all work before the event been done? Does not block. A failure of that work is returned here, and by
  // every later call on the event.
  virtual Status query(bool &done) = 0;
};

// Memory that frees itself. It may outlive every stream but must not outlive its Device. Freeing may block
// until work on the memory has ended.
class Allocation {
 public:
  virtual ~Allocation() = default;
  virtual void *data() const = 0;
  virtual size_t size() const = 0;
};

// A queue of work that runs in order. Ours, or the trainer's wrapped by Device::wrap.
class Stream {
 public:
  // Of one of ours: waits for its work. Of a wrapped one: leaves the vendor's stream as it is.
  virtual ~Stream() = default;
  // The calls below enqueue and return: none blocks, none has completed on return. Arguments are the vendor's
  // pointers; host memory must be pinned, stay valid until an event recorded behind the call is done, and not
  // be read or written by the caller before. After a failure nothing was enqueued and the stream is as it
  // was, but for DEVICE_FAILED, which the Device does not recover from: every later call returns it.
  virtual Status copy_to_host(void *host, const void *device, size_t bytes) = 0;
  virtual Status copy_to_device(void *device, const void *host, size_t bytes) = 0;
  virtual Status copy_on_device(void *dst, const void *src, size_t bytes) = 0;
  // As reduce_elements and copy_elements of device/host, with the same results to the bit.
  // NOT_SUPPORTED without DeviceCapabilities::reduces.
  virtual Status reduce(const Arithmetic &arithmetic, void *dst, Form dst_form, const void *a, Form a_form,
                        const void *b, Form b_form, uint64_t count, bool finish) = 0;
  virtual Status copy_convert(const Arithmetic &arithmetic, void *dst, Form dst_form, const void *a,
                              Form a_form, uint64_t count, bool finish) = 0;
  // An event behind all work enqueued so far.
  virtual Status record(std::unique_ptr<Event> &out) = 0;
  // Work enqueued from now on starts after `event`, which may be of another stream of the same Device and may
  // be destroyed as soon as this returns.
  virtual Status wait(const Event &event) = 0;
  // fn(arg) runs once when all work enqueued so far is done or has failed (an event recorded before tells
  // which), on a thread of the vendor's. It must not block nor call the vendor, nor throw.
  virtual Status notify(void (*fn)(void *arg), void *arg) = 0;
  // The vendor's stream, as Device::wrap takes it, for what else of the vendor's runs on one.
  virtual void *native() const = 0;
};

// A range of device memory as a file descriptor the kernel can hand to a network card. The caller owns fd.
struct DmaBuf {
  int fd = -1;
  uint64_t offset = 0;  // of the range within fd
};

class Device {
 public:
  // After close(). Never blocks, never throws.
  virtual ~Device() = default;

  virtual const char *vendor() const = 0;    // "nvidia", "ascend", ...: the word in Topology
  virtual int index() const = 0;             // as the vendor counts in this process
  virtual std::string describe() const = 0;  // model and memory, for people
  virtual DeviceCapabilities capabilities() const = 0;
  // Its place on this host, as "0000:17:00.0", the same in every process; "": not known.
  virtual std::string bus_address() const { return ""; }

  // May block. NO_MEMORY leaves nothing allocated.
  virtual Status allocate(size_t bytes, std::unique_ptr<Allocation> &out) = 0;
  // Host memory the chip copies from and to without a bounce. May block.
  virtual Status allocate_pinned(size_t bytes, std::unique_ptr<Allocation> &out) = 0;
  // Is this the chip's memory? Does not block.
  virtual bool owns(const void *data) const = 0;

  // Calls body() with this Device as the vendor's current one on this thread and puts the caller's back: the
  // vendor's own libraries take the chip from the thread. May block as long as body does. Returns what body
  // returns; DEVICE_FAILED without having called it where the vendor refuses.
  virtual Status with_current(const std::function<Status()> &body) = 0;

  // A stream of our own. May block.
  virtual Status make_stream(std::unique_ptr<Stream> &out) = 0;
  // The trainer's stream (cudaStream_t, aclrtStream, ...), borrowed: it must outlive what is returned.
  virtual Status wrap(void *vendor_stream, std::unique_ptr<Stream> &out) = 0;

  // data: inside memory of this Device, allocated by us or by the trainer. The memory must not be freed
  // before the descriptor is closed. NOT_SUPPORTED without DeviceCapabilities::exports_dmabuf. May block.
  virtual Status export_dmabuf(const void *data, size_t bytes, DmaBuf &out) = 0;
  // A number that the allocation around `data` has and no other of this process ever had, so that what was
  // made of memory can be told from what is at its address now. 0: the run time does not say. Does not block.
  virtual uint64_t allocation_number(const void * /*data*/) const { return 0; }
  // What network cards have written into the chip's memory is seen by all work that starts after this call;
  // without DeviceCapabilities::sees_card_writes nobody knows. Takes microseconds.
  virtual Status see_card_writes() { return {}; }

  // Waits for the work of our own streams, at most timeout_ns, and gives back what the Device holds of the
  // vendor's run time. On TIMED_OUT that is left to the process's end. Afterwards only the destructor may be
  // called, also for the streams and events made here. Call once, from one thread.
  virtual Status close(int64_t timeout_ns) = 0;
};

}  // namespace dicomm
