#include "store/wrapped.h"

#include <algorithm>

#include "store/wire.h"

namespace dicomm {
namespace {

constexpr size_t kFirstGuess = 4096;  // most values fit, so that one call suffices

Status foreign(int32_t status, std::string_view what, std::string_view key) {
  if (status == DICOMM_OK) return {};
  const bool known = dicomm_status_name(status) != nullptr;
  return Status::make(known ? static_cast<dicomm_status>(status) : DICOMM_SYSTEM,
                      "the caller's store failed to ", what, " key '", key, "'");
}

}  // namespace

Status WrappedStore::set(std::string_view key, std::span<const std::byte> value) {
  DICOMM_TRY(check_entry(key, value.size()));
  const auto *bytes = reinterpret_cast<const uint8_t *>(value.data());
  return foreign(vtable_.set(self_, std::string(key).c_str(), bytes, value.size()), "set", key);
}

Status WrappedStore::get(std::string_view key, std::vector<std::byte> &value, Nanos deadline) {
  DICOMM_TRY(check_entry(key, 0));
  const std::string name(key);
  std::vector<std::byte> found(kFirstGuess);
  for (;;) {
    size_t length = 0;
    const Nanos left = deadline == kNever ? kNever : std::max<Nanos>(0, deadline - now());
    const int64_t timeout = left == kNever ? int64_t{DICOMM_TIMEOUT_NEVER} : left;
    auto *bytes = reinterpret_cast<uint8_t *>(found.data());
    DICOMM_TRY(foreign(vtable_.get(self_, name.c_str(), bytes, found.size(), &length, timeout), "get", key));
    if (length > kMaxValueBytes)
      return Status::make(DICOMM_INVALID_ARGUMENT, "the caller's store returned ", length, " bytes for key '",
                          key, "', more than ", kMaxValueBytes);
    const bool complete = length <= found.size();
    found.resize(length);
    if (!complete) continue;
    value = std::move(found);
    return {};
  }
}

Status WrappedStore::check(std::string_view key, bool &exists) {
  DICOMM_TRY(check_entry(key, 0));
  int32_t found = 0;
  DICOMM_TRY(foreign(vtable_.check(self_, std::string(key).c_str(), &found), "look for", key));
  exists = found != 0;
  return {};
}

Status WrappedStore::add(std::string_view key, int64_t, int64_t &) {
  return Status::make(DICOMM_NOT_SUPPORTED, "the caller's store cannot add to key '", key, "'");
}

}  // namespace dicomm
