#include "base/dynamic_library.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>

namespace dicomm {

namespace {

std::string file_of(void *handle, const std::string &name) {
  link_map *map = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr || map->l_name[0] == 0) return name;
  char *resolved = ::realpath(map->l_name, nullptr);
  std::string file = resolved != nullptr ? resolved : map->l_name;
  ::free(resolved);
  return file;
}

}  // namespace

Status DynamicLibrary::open(const std::string &what, const std::vector<std::string> &files,
                            const std::string &how) {
  std::string answers;
  for (const std::string &file : files) {
    handle_ = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) {
      file_ = file_of(handle_, file);
      return {};
    }
    const char *answer = ::dlerror();
    answers += concat(answers.empty() ? "" : "; ", answer != nullptr ? answer : file);
  }
  return Status::make(DICOMM_NOT_SUPPORTED, "cannot open ", what, ": ", answers, ". ", how);
}

std::vector<std::string> DynamicLibrary::loaded(const std::vector<std::string> &files) {
  std::vector<std::string> out;
  for (const std::string &file : files) {
    void *handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (handle == nullptr) continue;
    ::dlclose(handle);  // gives back this one use of it
    out.push_back(file);
  }
  return out;
}

void *DynamicLibrary::find(const std::string &symbol) const { return ::dlsym(handle_, symbol.c_str()); }

}  // namespace dicomm
