// The double of libibverbs for one test: settings as at the start, and at the end nothing open and no rule
// broken.
#pragma once

#include "doubles/double.h"
#include "doubles/verbs_control.h"
#include "transport/verbs/library.h"

namespace dicomm::test {

struct VerbsDouble {
  explicit VerbsDouble(size_t devices = 1) {
    const Status opened = VerbsLibrary::open(double_path("ibverbs"), library);
    REQUIRE_MESSAGE(opened.ok(), opened.message());
    REQUIRE(control.reset());
    calls.results.clear();
    control.settings.devices.resize(devices);
    for (size_t i = 1; i < devices; ++i)  // each in a network of its own
      control.settings.devices[i].gids[1].gid = doubles::ipv4_gid(10, 0, static_cast<uint8_t>(i), 1);
  }
  ~VerbsDouble() {
    CHECK(control.seen.open() == 0);
    for (const std::string &error : control.seen.errors) FAIL_CHECK(error);
  }
  VerbsDouble(const VerbsDouble &) = delete;
  VerbsDouble &operator=(const VerbsDouble &) = delete;

  std::shared_ptr<const VerbsLibrary> library;
  doubles::VerbsControl &control = *reinterpret_cast<doubles::VerbsControl *(*)()>(
      double_symbol("ibverbs", "dicomm_double_verbs_control"))();
  doubles::Control &calls = *double_control("ibverbs");  // the log; an errno for the next call, "reg_mr"
};

}  // namespace dicomm::test
