// The plugin as one translation unit: PyTorch's headers take most of the 25 seconds of compiling, once here
// rather than once per file, and a plain compiler command can build it on first use.
#include "backend.cc"              // NOLINT
#include "backend_alltoall.cc"     // NOLINT
#include "backend_collectives.cc"  // NOLINT
#include "backend_p2p.cc"          // NOLINT
#include "backend_sparse.cc"       // NOLINT
#include "completions.cc"          // NOLINT
#include "device.cc"               // NOLINT
#include "errors.cc"               // NOLINT
#include "module.cc"               // NOLINT
#include "process.cc"              // NOLINT
#include "store.cc"                // NOLINT
#include "tensors.cc"              // NOLINT
#include "vendor.cc"               // NOLINT
#include "work.cc"                 // NOLINT
