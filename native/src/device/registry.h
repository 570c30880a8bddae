// The vendors of this build: registry.cc is the only file that names the classes.
#pragma once

#include <memory>

#include "device/device.h"

namespace dicomm {

// `out` stays null for "cpu", unless chip.library names what serves it: operations on host memory need no
// Device. INVALID_ARGUMENT lists the vendors
// when chip.vendor is none of them, NOT_SUPPORTED says which run time is missing and where it comes from.
// chip.simulation, where it is given, decides alone. May block.
Status open_device(const dicomm_chip &chip, std::unique_ptr<Device> &out);

}  // namespace dicomm
