// The vendors' collective libraries of this build: registry.cc is the only file that names the classes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ccl/ccl.h"

namespace dicomm {

// The library for chips of `vendor` (Device::vendor()). INVALID_ARGUMENT lists the vendors there are
// libraries for; NOT_SUPPORTED says which file was looked for and how to get it. May block: the library is
// loaded.
Status open_ccl(const std::string &vendor, std::unique_ptr<Ccl> &out);
// Those vendors.
std::vector<std::string> ccl_vendors();

}  // namespace dicomm
