// The words rules are written and printed in.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dicomm {

int find_collective(std::string_view name);           // the opcode, or -1
std::string bytes_text(uint64_t bytes);               // "64K" where that is exact
std::string byte_range(uint64_t low, uint64_t high);  // "any", "<= 4K", ">= 1M", "4K-1M"
std::string size_range(int low, int high);

}  // namespace dicomm
