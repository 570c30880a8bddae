// The double of libibverbs for one test: settings as at the start, and at the end nothing open and no rule
// broken.
#pragma once

#include "doubles/double.h"
#include "doubles/verbs_control.h"
#include "transport/verbs/library.h"

namespace dicomm::test {

struct VerbsDouble {
  VerbsDouble() {
    const Status opened = VerbsLibrary::open(double_path("ibverbs"), library);
    REQUIRE_MESSAGE(opened.ok(), opened.message());
    REQUIRE(control.reset());
    calls.results.clear();
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
