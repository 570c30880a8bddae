// Strided layouts: gather to and scatter from contiguous memory, in row-major order of the shape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dicomm/dicomm.h"

namespace dicomm {

// An owned copy of dicomm_layout with unit and mergeable dimensions folded.
struct Layout {
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // bytes
  static Layout from(const dicomm_layout &layout, size_t element);
  bool contiguous(size_t element) const;
  int64_t count() const;
  // Lowest and one past the highest byte touched, relative to the data pointer.
  void extent(size_t element, int64_t &low, int64_t &high) const;
  bool overlaps_itself(
      size_t element) const;  // two index tuples, one address (conservative only for exotic strides)
};

// element: 1, 2, 4, 8 or 16 bytes.
void pack(void *dst, const void *data, const Layout &layout, size_t element);
void unpack(void *data, const Layout &layout, const void *src, size_t element);

}  // namespace dicomm
