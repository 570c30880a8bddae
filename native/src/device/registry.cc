#include "device/registry.h"

#include <string_view>

#include "device/acl/device.h"
#include "device/cuda/device.h"
#include "device/processor/device.h"
#include "device/sim/device.h"

namespace dicomm {

Status open_device(const dicomm_chip &chip, std::unique_ptr<Device> &out) {
  out.reset();
  if (chip.simulation != nullptr) {
    SimProfile profile;
    DICOMM_TRY(read_profile(chip, profile));
    out = std::make_unique<SimDevice>(std::move(profile), chip.index);
    return {};
  }
  const std::string_view vendor = chip.vendor == nullptr ? "" : chip.vendor;
  const bool served = chip.library != nullptr && chip.library[0] != 0;
  if (vendor == "cpu") {
    if (served) out = std::make_unique<ProcessorDevice>();
    return {};
  }
  if (const CudaMember *member = find_cuda_member(vendor)) return CudaDevice::open(*member, chip.index, out);
  if (vendor == "ascend") return AclDevice::open(acl_files(), chip.index, out);
  std::string known = "cpu, ascend";
  for (const std::string &name : cuda_vendors()) known += ", " + name;
  return Status::make(DICOMM_INVALID_ARGUMENT, "no vendor is called '", vendor, "'; known: ", known);
}

}  // namespace dicomm
