// A c10d::Store as a dicomm_store, for the time of one dicomm_comm_create.
#pragma once

#include <exception>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "dicomm/dicomm.h"

namespace dicomm::torch_plugin {

// torch puts "<first device type>/" before the keys of a group's backend. Ranks whose chips are of different
// vendors have different device types and would never meet: this takes that one prefix off.
c10::intrusive_ptr<c10d::Store> without_device_prefix(const c10::intrusive_ptr<c10d::Store> &store);

// The same text for the same place in the same store: what a rank tells a first group from its successor by.
std::string identity(const c10::intrusive_ptr<c10d::Store> &store);
// The host of the TCPStore at the bottom, or "".
std::string host(const c10::intrusive_ptr<c10d::Store> &store);

class WrappedStore {
 public:
  explicit WrappedStore(c10::intrusive_ptr<c10d::Store> store);
  ~WrappedStore() { dicomm_store_close(handle_); }
  WrappedStore(const WrappedStore &) = delete;
  WrappedStore &operator=(const WrappedStore &) = delete;

  dicomm_store *handle() const { return handle_; }
  // Why the store failed, to say more than a status can: rethrows KeyboardInterrupt, returns other texts.
  std::string failure() const;

 private:
  static int32_t set(void *self, const char *key, const uint8_t *value, size_t len);
  static int32_t get(void *self, const char *key, uint8_t *value, size_t cap, size_t *len,
                     int64_t timeout_ns);
  static int32_t check(void *self, const char *key, int32_t *exists);
  int32_t fail();  // inside a catch block
  bool wait(const std::string &key, int64_t timeout_ns);

  c10::intrusive_ptr<c10d::Store> store_;
  dicomm_store *handle_ = nullptr;
  std::exception_ptr failure_;
};

}  // namespace dicomm::torch_plugin
