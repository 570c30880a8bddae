// The vendors' collective libraries of this build: registry.cc is the only file that names the classes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ccl/ccl.h"

namespace dicomm {

// The library for chips of chip.vendor, or of chip.simulation where it is given; or the one that chip.library
// names. INVALID_ARGUMENT
// lists the vendors there are libraries for; NOT_SUPPORTED says which file was looked for and how to get it.
// address: numeric, of this process, which the job's other ranks reach. May block: the library is loaded.
Status open_ccl(const dicomm_chip &chip, const std::string &address, std::unique_ptr<Ccl> &out);
// Those vendors.
std::vector<std::string> ccl_vendors();

}  // namespace dicomm
