// Layouts against an element-by-element walk over all index tuples.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "device/host/strided.h"

using namespace dicomm;

namespace {

// Byte offset of every element in row-major order.
std::vector<int64_t> offsets(const std::vector<int64_t> &shape, const std::vector<int64_t> &strides) {
  std::vector<int64_t> out = {0};
  for (size_t d = 0; d < shape.size(); ++d) {
    std::vector<int64_t> next;
    for (int64_t offset : out) {
      for (int64_t i = 0; i < shape[d]; ++i) next.push_back(offset + i * strides[d]);
    }
    out = next;
  }
  return out;
}

Layout layout_of(const std::vector<int64_t> &shape, const std::vector<int64_t> &strides, size_t element) {
  const dicomm_layout raw{static_cast<int32_t>(shape.size()), shape.data(), strides.data()};
  return Layout::from(raw, element);
}

struct Sample {
  std::vector<int64_t> shape, strides;  // bytes
};

Sample random_sample(std::mt19937 &random, size_t element) {
  Sample s;
  const size_t ndim = random() % 5;
  // A permuted dense tensor, then some dimensions sliced, reversed or expanded.
  std::vector<size_t> order(ndim);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  s.shape.resize(ndim);
  s.strides.resize(ndim);
  int64_t stride = static_cast<int64_t>(element);
  for (size_t d : order) {
    s.shape[d] = static_cast<int64_t>(random() % 5);
    s.strides[d] = stride;
    stride *= std::max<int64_t>(s.shape[d], 1) + (random() % 3 == 0 ? 1 : 0);
    if (random() % 4 == 0) s.strides[d] = -s.strides[d];
  }
  return s;
}

}  // namespace

TEST_CASE("pack and unpack move the logical elements in row-major order") {
  std::mt19937 random(7);
  for (size_t element : {1u, 2u, 4u, 8u, 16u}) {
    for (int round = 0; round < 300; ++round) {
      const Sample s = random_sample(random, element);
      const Layout layout = layout_of(s.shape, s.strides, element);
      const std::vector<int64_t> at = offsets(s.shape, s.strides);
      CAPTURE(element);
      CAPTURE(round);
      REQUIRE(layout.count() == static_cast<int64_t>(at.size()));
      int64_t low = 0, high = 0;
      layout.extent(element, low, high);
      const int64_t e = static_cast<int64_t>(element);
      if (!at.empty()) {
        CHECK(low == *std::min_element(at.begin(), at.end()));
        CHECK(high == *std::max_element(at.begin(), at.end()) + e);
      } else {
        CHECK(low == high);
      }
      CHECK_FALSE(layout.overlaps_itself(element));  // made without overlap
      bool dense = true;
      for (size_t i = 0; i < at.size(); ++i) dense = dense && at[i] == static_cast<int64_t>(i) * e;
      CHECK(layout.contiguous(element) == dense);

      std::vector<unsigned char> memory(static_cast<size_t>(high - low));
      for (auto &byte : memory) byte = static_cast<unsigned char>(random());
      std::vector<unsigned char> packed(at.size() * element);
      pack(packed.data(), memory.data() - low, layout, element);
      for (size_t i = 0; i < at.size(); ++i) {
        REQUIRE(std::memcmp(&packed[i * element], memory.data() + (at[i] - low), element) == 0);
      }
      std::vector<unsigned char> back(memory.size(), 0xee);
      unpack(back.data() - low, layout, packed.data(), element);
      std::set<int64_t> touched;
      for (int64_t offset : at) {
        for (int64_t b = 0; b < e; ++b) touched.insert(offset - low + b);
      }
      for (size_t b = 0; b < back.size(); ++b) {
        REQUIRE(back[b] == (touched.count(static_cast<int64_t>(b)) != 0 ? memory[b] : 0xee));
      }
    }
  }
}

TEST_CASE("an expanded tensor packs as its repeated elements and is known to overlap itself") {
  const std::vector<int32_t> data = {10, 20, 30};
  const Layout rows = layout_of({2, 3}, {0, 4}, 4);
  std::vector<int32_t> packed(6);
  pack(packed.data(), data.data(), rows, 4);
  CHECK(packed == std::vector<int32_t>{10, 20, 30, 10, 20, 30});
  const Layout columns = layout_of({3, 2}, {4, 0}, 4);
  pack(packed.data(), data.data(), columns, 4);
  CHECK(packed == std::vector<int32_t>{10, 10, 20, 20, 30, 30});
  CHECK(rows.overlaps_itself(4));
  CHECK(columns.overlaps_itself(4));
  CHECK(layout_of({4, 4}, {4, 4}, 4).overlaps_itself(4));
  CHECK(layout_of({4}, {2}, 4).overlaps_itself(4));
  CHECK_FALSE(layout_of({1, 3}, {0, 4}, 4).overlaps_itself(4));
}

TEST_CASE("mergeable dimensions are folded") {
  const Layout whole = layout_of({2, 1, 3, 4}, {48, 7, 16, 4}, 4);
  CHECK(whole.shape == std::vector<int64_t>{24});
  CHECK(whole.contiguous(4));
  const Layout sliced = layout_of({2, 3, 4}, {96, 16, 4}, 4);
  CHECK(sliced.shape == std::vector<int64_t>{2, 12});
  CHECK(layout_of({}, {}, 4).count() == 1);
  CHECK(layout_of({}, {}, 4).contiguous(4));
  CHECK(layout_of({5, 0, 2}, {4, 4, 4}, 4).count() == 0);
  CHECK(layout_of({5, 0, 2}, {4, 4, 4}, 4).contiguous(4));
}
