#include "store/store.h"

#include "api/guard.h"

struct dicomm_store {
  std::unique_ptr<dicomm::Store> store;
};

using dicomm::guard;
using dicomm::Status;

namespace {

constexpr dicomm::Nanos kConnectTimeout = 60 * dicomm::kSecond;

std::span<const std::byte> bytes(const uint8_t *data, size_t len) {
  return {reinterpret_cast<const std::byte *>(data), len};
}

}  // namespace

extern "C" {

dicomm_status dicomm_store_open(const char *url, const dicomm_store_options *given, dicomm_store **out) {
  return guard([&]() -> Status {
    if (url == nullptr || out == nullptr)
      return Status::make(DICOMM_INVALID_ARGUMENT, "url and out are required");
    const auto options = dicomm::read_options(given);
    dicomm::StoreOptions store;
    const auto secret = bytes(options.secret, options.secret == nullptr ? 0 : options.secret_len);
    store.secret.assign(secret.begin(), secret.end());
    store.timeout = dicomm::timeout_or(options.timeout_ns, kConnectTimeout);
    auto made = std::make_unique<dicomm_store>();
    DICOMM_TRY(dicomm::open_store(url, store, made->store));
    *out = made.release();
    return {};
  });
}

dicomm_status dicomm_store_wrap(const dicomm_store_vtable *vtable, void *self, dicomm_store **out) {
  return guard([&]() -> Status {
    if (vtable == nullptr || out == nullptr || vtable->size < sizeof *vtable) {
      return Status::make(DICOMM_INVALID_ARGUMENT, "a store needs set, get and check");
    }
    *out = new dicomm_store{dicomm::wrap_store(*vtable, self)};
    return {};
  });
}

size_t dicomm_store_url(const dicomm_store *store, char *buf, size_t cap) {
  return dicomm::answer(store->store->url(), buf, cap);
}

dicomm_status dicomm_store_set(dicomm_store *store, const char *key, const uint8_t *value, size_t len) {
  return guard([&]() -> Status { return store->store->set(key, bytes(value, len)); });
}

dicomm_status dicomm_store_get(dicomm_store *store, const char *key, uint8_t *value, size_t cap, size_t *len,
                               int64_t timeout_ns) {
  return guard([&]() -> Status {
    std::vector<std::byte> found;
    const dicomm::Nanos deadline = timeout_ns == DICOMM_TIMEOUT_NEVER
                                       ? dicomm::kNever
                                       : dicomm::deadline_after(std::max<int64_t>(timeout_ns, 0));
    DICOMM_TRY(store->store->get(key, found, deadline));
    *len = found.size();
    if (value != nullptr && !found.empty()) std::memcpy(value, found.data(), std::min(cap, found.size()));
    return {};
  });
}

dicomm_status dicomm_store_add(dicomm_store *store, const char *key, int64_t delta, int64_t *result) {
  return guard([&]() -> Status { return store->store->add(key, delta, *result); });
}

void dicomm_store_close(dicomm_store *store) { delete store; }
}

namespace dicomm {
// For dicomm_comm_create, in the other half of the ABI.
Store &unwrap(dicomm_store &store) { return *store.store; }
}  // namespace dicomm
