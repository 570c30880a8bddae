// The collective library of a simulated brand: serves the ranks of its brand and refuses all others, as
// vendors' libraries do, between processes and hosts.
//
// It stands for a foreign library, so it is a program of its own: a client of the public C ABI, with a store,
// a context and a communicator that the job around it knows nothing of. That makes it the one place below
// `api` that calls the ABI, and spares a second transport.
#pragma once

#include <map>
#include <mutex>

#include "ccl/ccl.h"
#include "device/sim/profile.h"

namespace dicomm {

struct SimCclOptions {
  SimProfile profile;
  std::string address = "127.0.0.1";  // numeric, on which this process listens; the other ranks must reach it
};

class SimCcl final : public Ccl {
 public:
  explicit SimCcl(SimCclOptions options);
  ~SimCcl() override;

  const char *name() const override { return name_.c_str(); }  // "alpha-ccl"
  const char *vendor() const override { return options_.profile.brand.c_str(); }
  std::string describe() const override;
  CclCapabilities capabilities() const override { return capabilities_; }

  Status make_id(CclId &out) override;
  Status join(const CclId &id, int rank, int size, Device &device, int64_t timeout_ns,
              std::unique_ptr<CclGroup> &out) override;

 private:
  const SimCclOptions options_;
  const std::string name_;
  const CclCapabilities capabilities_;
  std::mutex mutex_;
  std::map<CclId, dicomm_store *> served_;  // for ids made here, until this process joins or the library goes
};

}  // namespace dicomm
