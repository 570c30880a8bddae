// Ccl over the MPI of the process, for ranks on the host's processors.
#pragma once

#include <memory>

#include "ccl/ccl.h"

namespace dicomm {

// NOT_SUPPORTED when there is no MPI, or none that several threads may call. May block: MPI is initialised
// where nobody has done it.
Status open_mpi(std::unique_ptr<Ccl> &out);

}  // namespace dicomm
