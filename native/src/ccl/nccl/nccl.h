// Ccl over one library of the NCCL family.
#pragma once

#include <memory>

#include "ccl/ccl.h"
#include "ccl/nccl/members.h"

namespace dicomm {

// NOT_SUPPORTED when the library is not there, or lacks what every member has.
Status open_nccl(const nccl::Member &member, std::unique_ptr<Ccl> &out);

}  // namespace dicomm
