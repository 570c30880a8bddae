// Residuals: what encodings lost of each buffer, added to it the next time (error feedback, Seide et al.
// 2014).
#pragma once

#include <cstdint>
#include <list>
#include <memory>

namespace dicomm {

// By the buffer's address and size, the most recently used ones. Lock of the caller.
class Residuals {
 public:
  // Of the buffer's elements, zeros at first. Throws std::bad_alloc.
  std::shared_ptr<float[]> of(const void *buffer, int32_t opcode, uint64_t elements);

 private:
  static constexpr size_t kMost = 256;
  struct Entry {
    const void *buffer;
    int32_t opcode;
    uint64_t elements;
    std::shared_ptr<float[]> values;
  };
  std::list<Entry> entries_;  // last used first
};

}  // namespace dicomm
