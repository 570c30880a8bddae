#include "ccl/registry.h"

#include <string_view>

#include "ccl/hccl/hccl.h"
#include "ccl/hccl/library.h"
#include "ccl/nccl/nccl.h"
#include "ccl/sim/library.h"

namespace dicomm {

Status open_ccl(const dicomm_chip &chip, const std::string &address, std::unique_ptr<Ccl> &out) {
  if (chip.simulation != nullptr) {
    SimCclOptions options;
    DICOMM_TRY(read_profile(chip, options.profile));
    if (!address.empty()) options.address = address;
    out = std::make_unique<SimCcl>(std::move(options));
    return {};
  }
  const std::string_view vendor = chip.vendor == nullptr ? "" : chip.vendor;
  for (const nccl::Member &member : nccl::members())
    if (member.vendor == vendor) return open_nccl(member, out);
  if (vendor == "ascend") return open_hccl(hccl::files(), out);
  std::string known;
  for (const std::string &one : ccl_vendors()) known += " " + one;
  return Status::make(DICOMM_INVALID_ARGUMENT, "no collective library is known for chips of '", vendor,
                      "', only for:", known);
}

std::vector<std::string> ccl_vendors() {
  std::vector<std::string> out;
  for (const nccl::Member &member : nccl::members()) out.push_back(member.vendor);
  out.push_back("ascend");
  return out;
}

}  // namespace dicomm
