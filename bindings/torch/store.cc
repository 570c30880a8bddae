#include "store.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <typeinfo>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "errors.h"
#include "gil.h"

namespace dicomm::torch_plugin {

namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using Clock = std::chrono::steady_clock;

// A wait in a store is cut into pieces, between which Ctrl-C is looked for.
constexpr milliseconds kSlice{500};

// PrefixStore has no accessor for its prefix; a derived class may name the protected member.
struct PrefixAccess : c10d::PrefixStore {
  static const std::string &prefix(const c10d::PrefixStore &store) { return store.*(&PrefixAccess::prefix_); }
};

bool is_device_prefix(const std::string &prefix) {
  if (prefix.size() < 2 || prefix.back() != '/') return false;
  try {
    return !c10::Device(prefix.substr(0, prefix.size() - 1)).has_index();
  } catch (const c10::Error &) {
    return false;
  }
}

c10::intrusive_ptr<c10d::Store> bottom(c10::intrusive_ptr<c10d::Store> store) {
  while (auto *prefixed = dynamic_cast<c10d::PrefixStore *>(store.get()))
    store = prefixed->getUnderlyingStore();
  return store;
}

}  // namespace

c10::intrusive_ptr<c10d::Store> without_device_prefix(const c10::intrusive_ptr<c10d::Store> &store) {
  auto *prefixed = dynamic_cast<c10d::PrefixStore *>(store.get());
  if (prefixed && is_device_prefix(PrefixAccess::prefix(*prefixed))) return prefixed->getUnderlyingStore();
  return store;
}

std::string identity(const c10::intrusive_ptr<c10d::Store> &store) {
  std::string text;
  auto at = store;
  while (auto *prefixed = dynamic_cast<c10d::PrefixStore *>(at.get())) {
    text += PrefixAccess::prefix(*prefixed) + "|";
    at = prefixed->getUnderlyingStore();
  }
  if (auto *tcp = dynamic_cast<c10d::TCPStore *>(at.get())) {
    return text + tcp->getHost() + ":" + std::to_string(tcp->getPort());
  }
  if (auto *file = dynamic_cast<c10d::FileStore *>(at.get())) return text + file->getPath();
  const c10d::Store &other = *at;
  return text + typeid(other).name();
}

std::string host(const c10::intrusive_ptr<c10d::Store> &store) {
  const auto at = bottom(store);
  auto *tcp = dynamic_cast<c10d::TCPStore *>(at.get());
  return tcp ? tcp->getHost() : "";
}

WrappedStore::WrappedStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {
  static constexpr dicomm_store_vtable kVtable{sizeof(dicomm_store_vtable), &set, &get, &check};
  torch_plugin::check(dicomm_store_wrap(&kVtable, this, &handle_));
}

std::string WrappedStore::failure() const {
  if (!failure_) return "";
  try {
    std::rethrow_exception(failure_);
  } catch (const c10::Error &error) {
    return error.what_without_backtrace();
  } catch (pybind11::error_already_set &error) {
    pybind11::gil_scoped_acquire gil;
    if (!error.matches(PyExc_Exception)) throw;
    return error.what();
  } catch (const std::exception &error) {
    return error.what();
  }
}

int32_t WrappedStore::fail() {
  failure_ = std::current_exception();
  return DICOMM_SYSTEM;
}

int32_t WrappedStore::set(void *self, const char *key, const uint8_t *value, size_t len) {
  auto *wrapped = static_cast<WrappedStore *>(self);
  try {
    wrapped->store_->set(key, std::vector<uint8_t>(value, value + len));
    return DICOMM_OK;
  } catch (...) {
    return wrapped->fail();
  }
}

int32_t WrappedStore::get(void *self, const char *key, uint8_t *value, size_t cap, size_t *len,
                          int64_t timeout_ns) {
  auto *wrapped = static_cast<WrappedStore *>(self);
  try {
    if (!wrapped->wait(key, timeout_ns)) return DICOMM_TIMED_OUT;
    const auto bytes = wrapped->store_->get(key);
    *len = bytes.size();
    std::memcpy(value, bytes.data(), std::min(cap, bytes.size()));
    return DICOMM_OK;
  } catch (...) {
    return wrapped->fail();
  }
}

int32_t WrappedStore::check(void *self, const char *key, int32_t *exists) {
  auto *wrapped = static_cast<WrappedStore *>(self);
  try {
    *exists = wrapped->store_->check({key}) ? 1 : 0;
    return DICOMM_OK;
  } catch (...) {
    return wrapped->fail();
  }
}

// Stores have no common exception for a time-out: one that comes when the time is up is taken for it.
bool WrappedStore::wait(const std::string &key, int64_t timeout_ns) {
  const auto start = Clock::now();
  const nanoseconds limit = timeout_ns < 0 ? nanoseconds::max() : nanoseconds(timeout_ns);
  while (true) {
    const auto piece_start = Clock::now();
    const auto left = limit - (piece_start - start);
    const auto piece = std::clamp<nanoseconds>(left, milliseconds(1), kSlice);
    try {
      store_->wait({key}, std::chrono::duration_cast<milliseconds>(piece));
      return true;
    } catch (...) {
      if (Clock::now() - piece_start < piece * 8 / 10) throw;
    }
    check_signals();
    if (Clock::now() - start >= limit) return false;
  }
}

}  // namespace dicomm::torch_plugin
