// The libraries of simulated brands in the suite of ccl/ccl.h, with everything and with what they can lack.

#include "ccl/sim/library.h"
#include "ccl_suite.h"
#include "device/sim/device.h"

namespace dicomm::test {

namespace {

// Ids are served by the library that makes them, as long as it lives; the suite drops it before they are
// used.
class Lasting final : public Ccl {
 public:
  explicit Lasting(std::shared_ptr<SimCcl> library) : library_(std::move(library)) {}
  const char *name() const override { return library_->name(); }
  const char *vendor() const override { return library_->vendor(); }
  std::string describe() const override { return library_->describe(); }
  CclCapabilities capabilities() const override { return library_->capabilities(); }
  Status make_id(CclId &out) override { return library_->make_id(out); }
  Status join(const CclId &id, int rank, int size, Device &device, int64_t timeout_ns,
              std::unique_ptr<CclGroup> &out) override {
    return library_->join(id, rank, size, device, timeout_ns, out);
  }

 private:
  std::shared_ptr<SimCcl> library_;
};

suite::CclSetup setup(const SimProfile &profile) {
  auto library = std::make_shared<SimCcl>(SimCclOptions{profile});
  return {[library](std::unique_ptr<Ccl> &out) -> Status {
            out = std::make_unique<Lasting>(library);
            return {};
          },
          [profile](int rank, std::unique_ptr<Device> &out) -> Status {
            out = std::make_unique<SimDevice>(profile, rank);
            return {};
          }};
}

SimProfile beta() {
  SimProfile profile{.brand = "beta", .copy_gbs = 12, .copy_latency_us = 12, .link_gbs = 50};
  profile.dtypes &= ~(uint64_t{1} << DICOMM_BFLOAT16);
  profile.avg = profile.send_recv = false;
  return profile;
}

DICOMM_CCL_SUITE("sim", setup({.brand = "alpha"}))
DICOMM_CCL_SUITE("sim that lacks much", setup(beta()))

}  // namespace

}  // namespace dicomm::test
