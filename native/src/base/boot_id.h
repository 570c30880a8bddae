#pragma once

#include <fstream>
#include <string>

namespace dicomm {

// Of the running kernel: containers on one host have it in common, and no two hosts do. "" without /proc.
inline std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

}  // namespace dicomm
