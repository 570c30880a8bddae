// Names of the ABI's enumerations, as users write and read them: "allreduce", "bfloat16", "premul_sum".
#pragma once

#include <cstdint>
#include <string>

namespace dicomm {

// "?" for a value that is not in the list.
const char *opcode_name(int32_t opcode);
const char *dtype_name(int32_t dtype);
const char *reduce_name(int32_t reduce);

}  // namespace dicomm
