#include "device/host/strided.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace dicomm {

namespace {

// Moves one row: n elements, contiguous on one side and `stride` bytes apart on the other.
template <size_t kElement>
void gather_row(unsigned char *dst, const unsigned char *src, int64_t n, int64_t stride) {
  for (int64_t i = 0; i < n; ++i) std::memcpy(dst + i * int64_t{kElement}, src + i * stride, kElement);
}

template <size_t kElement>
void scatter_row(unsigned char *dst, const unsigned char *src, int64_t n, int64_t stride) {
  for (int64_t i = 0; i < n; ++i) std::memcpy(dst + i * stride, src + i * int64_t{kElement}, kElement);
}

using Row = void (*)(unsigned char *dst, const unsigned char *src, int64_t n, int64_t stride);

Row row_function(bool scatter, size_t element) {
  switch (element) {
    case 1:
      return scatter ? scatter_row<1> : gather_row<1>;
    case 2:
      return scatter ? scatter_row<2> : gather_row<2>;
    case 4:
      return scatter ? scatter_row<4> : gather_row<4>;
    case 8:
      return scatter ? scatter_row<8> : gather_row<8>;
    default:
      return scatter ? scatter_row<16> : gather_row<16>;
  }
}

// Calls f(offset in bytes) for every row, in row-major order.
template <class F>
void for_each_row(const Layout &layout, F f) {
  const size_t outer = layout.shape.empty() ? 0 : layout.shape.size() - 1;
  std::vector<int64_t> index(outer, 0);
  int64_t offset = 0;
  for (;;) {
    f(offset);
    size_t d = outer;
    for (; d > 0; --d) {
      offset += layout.strides[d - 1];
      if (++index[d - 1] < layout.shape[d - 1]) break;
      offset -= layout.strides[d - 1] * layout.shape[d - 1];
      index[d - 1] = 0;
    }
    if (d == 0) return;
  }
}

}  // namespace

Layout Layout::from(const dicomm_layout &layout, size_t element) {
  Layout out;
  for (int32_t d = 0; d < layout.ndim; ++d) {
    const int64_t n = layout.shape[d];
    if (n == 0) return Layout{{0}, {static_cast<int64_t>(element)}};
    if (n == 1) continue;
    if (!out.shape.empty() && out.strides.back() == layout.strides[d] * n) {
      out.shape.back() *= n;
      out.strides.back() = layout.strides[d];
    } else {
      out.shape.push_back(n);
      out.strides.push_back(layout.strides[d]);
    }
  }
  return out;
}

bool Layout::contiguous(size_t element) const {
  if (shape.empty() || count() == 0) return true;
  return shape.size() == 1 && strides[0] == static_cast<int64_t>(element);
}

int64_t Layout::count() const {
  int64_t n = 1;
  for (int64_t extent : shape) n *= extent;
  return n;
}

void Layout::extent(size_t element, int64_t &low, int64_t &high) const {
  low = high = 0;
  if (count() == 0) return;
  for (size_t d = 0; d < shape.size(); ++d) {
    const int64_t reach = (shape[d] - 1) * strides[d];
    (reach < 0 ? low : high) += reach;
  }
  high += static_cast<int64_t>(element);
}

bool Layout::overlaps_itself(size_t element) const {
  if (count() == 0) return false;
  std::vector<std::pair<int64_t, int64_t>> dims;  // |stride|, extent
  for (size_t d = 0; d < shape.size(); ++d) dims.emplace_back(std::abs(strides[d]), shape[d]);
  std::sort(dims.begin(), dims.end());
  int64_t covered = static_cast<int64_t>(element);  // bytes spanned by the dimensions so far
  for (const auto &[stride, n] : dims) {
    if (stride < covered) return true;
    covered += stride * (n - 1);
  }
  return false;
}

void pack(void *dst, const void *data, const Layout &layout, size_t element) {
  if (layout.count() == 0) return;
  auto *out = static_cast<unsigned char *>(dst);
  const auto *in = static_cast<const unsigned char *>(data);
  const int64_t n = layout.shape.empty() ? 1 : layout.shape.back();
  const int64_t stride = layout.shape.empty() ? static_cast<int64_t>(element) : layout.strides.back();
  const int64_t row = n * static_cast<int64_t>(element);
  const Row gather = row_function(false, element);
  for_each_row(layout, [&](int64_t offset) {
    if (stride == static_cast<int64_t>(element)) {
      std::memcpy(out, in + offset, static_cast<size_t>(row));
    } else {
      gather(out, in + offset, n, stride);
    }
    out += row;
  });
}

void unpack(void *data, const Layout &layout, const void *src, size_t element) {
  if (layout.count() == 0) return;
  auto *out = static_cast<unsigned char *>(data);
  const auto *in = static_cast<const unsigned char *>(src);
  const int64_t n = layout.shape.empty() ? 1 : layout.shape.back();
  const int64_t stride = layout.shape.empty() ? static_cast<int64_t>(element) : layout.strides.back();
  const int64_t row = n * static_cast<int64_t>(element);
  const Row scatter = row_function(true, element);
  for_each_row(layout, [&](int64_t offset) {
    if (stride == static_cast<int64_t>(element)) {
      std::memcpy(out + offset, in, static_cast<size_t>(row));
    } else {
      scatter(out + offset, in, n, stride);
    }
    in += row;
  });
}

}  // namespace dicomm
