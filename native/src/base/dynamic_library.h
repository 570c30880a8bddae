// A shared library that is opened at run time and never closed: vendors' libraries do not survive dlclose.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace dicomm {

class DynamicLibrary {
 public:
  // The first of `files` that opens: names the loader searches for, or paths. NOT_SUPPORTED says what was
  // tried, what the loader answered and `how` to get it. May block: constructors of the library run.
  Status open(const std::string &what, const std::vector<std::string> &files, const std::string &how);
  // Those of `files` that this process has already, whoever opened them.
  static std::vector<std::string> loaded(const std::vector<std::string> &files);
  // Null when the library has no such symbol. Any thread.
  void *find(const std::string &symbol) const;
  // As find, into a pointer to a function. The names of those that are not there gather in `missing`, if
  // given.
  template <class Function>
  void find(const std::string &symbol, Function &out, std::string *missing) const {
    out = reinterpret_cast<Function>(find(symbol));
    if (out == nullptr && missing != nullptr) *missing += (missing->empty() ? "" : ", ") + symbol;
  }
  // The file that was opened, links resolved: where they install side by side it tells the version.
  const std::string &file() const { return file_; }

 private:
  void *handle_ = nullptr;
  std::string file_;
};

}  // namespace dicomm
