#include "path/words.h"

#include <limits>

#include "base/names.h"
#include "dicomm/dicomm.h"

namespace dicomm {

int find_collective(std::string_view name) {
  for (int op = DICOMM_BARRIER; op <= DICOMM_SCATTER; ++op) {
    if (opcode_name(op) == name) return op;
  }
  return -1;
}

std::string bytes_text(uint64_t bytes) {
  if (bytes == 0) return "0";
  const char *units[] = {"", "K", "M", "G"};
  int unit = 0;
  for (; unit < 3 && bytes % 1024 == 0; ++unit) bytes /= 1024;
  return std::to_string(bytes) + units[unit];
}

std::string byte_range(uint64_t low, uint64_t high) {
  const bool open = high == std::numeric_limits<uint64_t>::max();
  if (open) return low == 0 ? "any" : ">= " + bytes_text(low);
  return low == 0 ? "<= " + bytes_text(high) : bytes_text(low) + "-" + bytes_text(high);
}

std::string size_range(int low, int high) {
  const bool open = high == std::numeric_limits<int>::max();
  if (open) return low <= 1 ? "any" : ">= " + std::to_string(low);
  return low <= 1 ? "<= " + std::to_string(high) : std::to_string(low) + "-" + std::to_string(high);
}

}  // namespace dicomm
