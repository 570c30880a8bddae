#include "ccl/registry.h"

#include <string_view>

#include "ccl/hccl/hccl.h"
#include "ccl/hccl/library.h"
#include "ccl/mpi/mpi.h"
#include "ccl/nccl/nccl.h"
#include "ccl/sim/library.h"

namespace dicomm {

Status open_ccl(const dicomm_chip &chip, const std::string &address, std::unique_ptr<Ccl> &out) {
  const std::string_view library = chip.library == nullptr ? "" : chip.library;
  const std::string_view vendor = chip.vendor == nullptr ? "" : chip.vendor;
  if (!library.empty()) {
    if (library != "mpi")
      return Status::make(DICOMM_INVALID_ARGUMENT, "no island library is called '", library, "', only mpi");
    if (chip.simulation != nullptr || vendor != "cpu")
      return Status::make(DICOMM_INVALID_ARGUMENT,
                          "MPI serves ranks on the host's processors, not chips of '", vendor,
                          "', which have a library of their own");
    return open_mpi(out);
  }
  if (chip.simulation != nullptr) {
    SimCclOptions options;
    DICOMM_TRY(read_profile(chip, options.profile));
    if (!address.empty()) options.address = address;
    out = std::make_unique<SimCcl>(std::move(options));
    return {};
  }
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
