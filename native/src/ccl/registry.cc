#include "ccl/registry.h"

#include "ccl/nccl/nccl.h"

namespace dicomm {

Status open_ccl(const std::string &vendor, std::unique_ptr<Ccl> &out) {
  for (const nccl::Member &member : nccl::members())
    if (member.vendor == vendor) return open_nccl(member, out);
  std::string known;
  for (const std::string &one : ccl_vendors()) known += " " + one;
  return Status::make(DICOMM_INVALID_ARGUMENT, "no collective library is known for chips of '", vendor,
                      "', only for:", known);
}

std::vector<std::string> ccl_vendors() {
  std::vector<std::string> out;
  for (const nccl::Member &member : nccl::members()) out.push_back(member.vendor);
  return out;
}

}  // namespace dicomm
