#include "comm/residuals.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace dicomm {

std::shared_ptr<float[]> Residuals::of(const void *buffer, int32_t opcode, uint64_t elements) {
  const auto found = std::ranges::find_if(entries_, [&](const Entry &entry) {
    return entry.buffer == buffer && entry.opcode == opcode && entry.elements == elements;
  });
  if (found != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, found);
    return found->values;
  }
  // calloc: of a large buffer only what this rank encodes is ever touched.
  auto *zeros = static_cast<float *>(std::calloc(std::max<uint64_t>(elements, 1), sizeof(float)));
  if (zeros == nullptr) throw std::bad_alloc();
  entries_.push_front({buffer, opcode, elements, {zeros, std::free}});
  if (entries_.size() > kMost) entries_.pop_back();
  return entries_.front().values;
}

}  // namespace dicomm
