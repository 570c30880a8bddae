// What every double of a vendor's library lets a test do: see the calls, program their results, hold them up.
// The test reaches it through the library's own symbols, as it reaches the vendor's functions.
#pragma once

#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <thread>

namespace dicomm::doubles {

struct Control {
  std::mutex mutex;
  std::string log;
  std::map<std::string, int> results;  // of the next call of a function
  std::map<std::string, int> delays;   // milliseconds before the next call of a function
  int version = 0;
  int async_error = 0;  // of every communicator

  // Notes a call. Returns what is programmed for it, or 0.
  __attribute__((format(printf, 3, 4))) int called(const char *function, const char *format, ...) {
    char arguments[256];
    va_list list;
    va_start(list, format);
    std::vsnprintf(arguments, sizeof arguments, format, list);
    va_end(list);
    int result = 0, delay = 0;
    {
      const std::lock_guard lock(mutex);
      log += std::string(function) + "(" + arguments + ")\n";
      if (auto found = results.extract(function)) result = found.mapped();
      if (auto found = delays.extract(function)) delay = found.mapped();
    }
    if (delay > 0) std::this_thread::sleep_for(std::chrono::milliseconds(delay));
    return result;
  }
};

inline Control &control() {
  static Control one;
  return one;
}

}  // namespace dicomm::doubles

extern "C" {
inline __attribute__((used, visibility("default"))) dicomm::doubles::Control *dicomm_double_control() {
  return &dicomm::doubles::control();
}
}
