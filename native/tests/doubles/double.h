// Where a test finds the doubles of vendors' libraries, and how it programs them.
#pragma once

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <string>

#include "doubles/control.h"

namespace dicomm::test {

// name: "nccl", ... as in native/CMakeLists.txt
inline std::string double_path(const std::string &name) {
  // Not a sum of strings: g++ 12 warns of bounds broken in it.
  std::string path = DICOMM_DOUBLES "/libdicomm_double_";
  return path.append(name).append(".so");
}

inline void *double_symbol(const std::string &name, const char *symbol) {
  void *library = ::dlopen(double_path(name).c_str(), RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  void *const found = ::dlsym(library, symbol);
  REQUIRE(found != nullptr);
  return found;
}

inline doubles::Control *double_control(const std::string &name) {
  return reinterpret_cast<doubles::Control *(*)()>(double_symbol(name, "dicomm_double_control"))();
}

}  // namespace dicomm::test
