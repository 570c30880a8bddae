// Ccl over Huawei's HCCL.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ccl/ccl.h"

namespace dicomm {

// files: names or paths, tried in order. NOT_SUPPORTED when the library is not there.
Status open_hccl(const std::vector<std::string> &files, std::unique_ptr<Ccl> &out);

}  // namespace dicomm
