// libibverbs, opened at run time: a machine without rdma-core runs all else.
#pragma once

#include <memory>
#include <string>

#include "base/dynamic_library.h"
#include "base/error.h"
#include "transport/verbs/abi.h"

namespace dicomm {

struct VerbsLibrary {
  DynamicLibrary file;
  ibv::Functions call;

  // `name`: "" for libibverbs.so.1, else another file of that interface. NOT_SUPPORTED says how to get it.
  static Status open(const std::string &name, std::shared_ptr<const VerbsLibrary> &out);
};

}  // namespace dicomm
