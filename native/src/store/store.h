// Contract: a key-value store shared by all ranks, through which they find each other.
//
// Calls block the calling thread until done or until their deadline; the engine lock must not be held. One
// Store object may be used by one thread at a time. A failed call changes nothing; the store stays usable.
// Keys are up to 512 bytes, values up to 16 MiB; both are bounded on the wire as well.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/error.h"

namespace dicomm {

class Store {
 public:
  virtual ~Store() = default;
  // Sets or replaces.
  virtual Status set(std::string_view key, std::span<const std::byte> value) = 0;
  // Waits for the key. TIMED_OUT past the deadline.
  virtual Status get(std::string_view key, std::vector<std::byte> &value, Nanos deadline) = 0;
  // Does the key exist now?
  virtual Status check(std::string_view key, bool &exists) = 0;
  // Adds to the decimal number under the key (absent: 0). NOT_SUPPORTED for wrapped stores.
  virtual Status add(std::string_view key, int64_t delta, int64_t &result) = 0;
  // What a client opens to reach this store; "" when only this process can.
  virtual std::string url() const = 0;
};

// store/registry.cc, the only file that names the kinds: tcp, tcp-server, file.
struct StoreOptions {
  std::vector<std::byte> secret;
  Nanos timeout = 0;
};
Status open_store(const std::string &url, const StoreOptions &options, std::unique_ptr<Store> &out);
std::unique_ptr<Store> wrap_store(const dicomm_store_vtable &vtable, void *self);

}  // namespace dicomm
