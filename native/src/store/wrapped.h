// A store that somebody else implements, behind the C ABI's table of functions.
#pragma once

#include "store/store.h"

namespace dicomm {

class WrappedStore final : public Store {
 public:
  WrappedStore(const dicomm_store_vtable &vtable, void *self) : vtable_(vtable), self_(self) {}

  Status set(std::string_view key, std::span<const std::byte> value) override;
  Status get(std::string_view key, std::vector<std::byte> &value, Nanos deadline) override;
  Status check(std::string_view key, bool &exists) override;
  Status add(std::string_view key, int64_t delta, int64_t &result) override;
  std::string url() const override { return ""; }

 private:
  const dicomm_store_vtable vtable_;
  void *const self_;
};

}  // namespace dicomm
