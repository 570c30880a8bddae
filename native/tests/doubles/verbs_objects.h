// What the double of libibverbs keeps behind the handles it gives out.
#pragma once

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "doubles/verbs_control.h"

namespace dicomm::ibv {

struct Device {
  size_t index;
  std::string name;
};

}  // namespace dicomm::ibv

namespace dicomm::doubles {

// Events behind a descriptor that is readable while there are some, as the kernel's are.
template <class Event>
class Events {
 public:
  Events() : fd_(::eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC)) {}
  ~Events() { ::close(fd_); }
  Events(const Events &) = delete;
  Events &operator=(const Events &) = delete;

  int fd() const { return fd_; }

  // Under the lock.
  void push(const Event &event) {
    queue_.push_back(event);
    const uint64_t one = 1;
    (void)!::write(fd_, &one, sizeof one);
  }

  // Without the lock: blocks unless the user made the descriptor non-blocking. False: errno says why.
  template <class Taken>
  bool pop(std::mutex &mutex, Taken taken) {
    for (;;) {
      uint64_t one;
      if (::read(fd_, &one, sizeof one) != sizeof one) return false;
      const std::lock_guard lock(mutex);
      if (queue_.empty()) continue;  // withdrawn in the meantime
      const Event event = queue_.front();
      queue_.pop_front();
      taken(event);
      return true;
    }
  }

  // Under the lock.
  template <class Which>
  void withdraw(Which which) {
    const auto end = std::remove_if(queue_.begin(), queue_.end(), which);
    for (auto left = queue_.end() - end; left > 0; --left) {
      pollfd poll{fd_, POLLIN, 0};
      uint64_t one;
      if (::poll(&poll, 1, 0) == 1) (void)!::read(fd_, &one, sizeof one);
    }
    queue_.erase(end, queue_.end());
  }

 private:
  const int fd_;
  std::deque<Event> queue_;
};

struct OpenContext : ibv::Context {
  Events<ibv::AsyncEvent> events;
  size_t registered = 0;  // bytes
  int children = 0;
  bool dead = false;
};

struct Domain : ibv::Pd {
  int children = 0;
};

struct Region : ibv::Mr {
  uint64_t start = 0;  // as work requests name it
  char *bytes = nullptr;
  int access = 0;
  void *mapping = nullptr;  // of a dma-buf
  size_t mapped = 0;

  ~Region() {
    if (mapping != nullptr) ::munmap(mapping, mapped);
  }
};

struct CompletionQueue;

struct Channel : ibv::CompChannel {
  Events<CompletionQueue *> events;
};

struct Completion {
  ibv::Wc wc;
  bool of_send;
  uint64_t number;  // of the work request in its queue, from 1
};

struct CompletionQueue : ibv::Cq {
  std::deque<Completion> completions;
  bool armed = false;
  int users = 0;  // queue pairs, each once for each of its two
  uint64_t delivered = 0, acknowledged = 0;
};

struct Send {
  ibv::SendWr request;
  std::vector<ibv::Sge> parts;
  std::vector<char> inlined;  // taken when posted
  uint64_t number;
  bool counted_rnr = false;

  uint64_t bytes() const {
    uint64_t sum = inlined.size();
    for (const ibv::Sge &part : parts) sum += part.length;
    return sum;
  }
  bool takes_receive() const { return request.opcode != ibv::wr_rdma_write; }
};

struct Receive {
  uint64_t wr_id;
  std::vector<ibv::Sge> parts;
  uint64_t number;
};

struct QueuePair : ibv::Qp {
  ibv::QpInitAttr init{};
  ibv::QpAttr attr{};
  int now = ibv::qps_reset;  // the library's `state` is what the user last asked for
  std::deque<Send> sends;
  std::deque<Receive> receives;
  // A place in a queue is free again when the completion of its work request, or of a later one, was polled.
  uint64_t sends_posted = 0, sends_freed = 0, receives_posted = 0, receives_freed = 0;
  uint64_t delivered = 0, acknowledged = 0;  // events

  OpenContext &owner() const { return *static_cast<OpenContext *>(context); }
  CompletionQueue &of_sends() const { return *static_cast<CompletionQueue *>(send_cq); }
  CompletionQueue &of_receives() const { return *static_cast<CompletionQueue *>(recv_cq); }
};

}  // namespace dicomm::doubles
