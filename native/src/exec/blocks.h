// BlockList: an operation's input or output, a list of blocks that a schedule sees as one run of elements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "device/host/strided.h"

namespace dicomm {

class BlockList {
 public:
  // INVALID_ARGUMENT for null data, negative counts, layouts whose shape is not the count. `what`: "send",
  // "recv".
  static Status from(const dicomm_block *blocks, int32_t n, size_t element, const char *what, BlockList &out);

  uint64_t count() const { return count_; }
  uint64_t bytes() const { return count_ * element_; }
  size_t size() const { return blocks().size(); }
  bool empty() const { return blocks().empty(); }
  uint64_t count_of(size_t block) const { return blocks()[block].count; }
  // The blocks lie one after another without gaps, at base().
  bool contiguous() const { return contiguous_; }
  std::byte *base() const { return base_; }
  void pack(std::byte *into) const;
  void unpack(const std::byte *from) const;
  // Do any two elements of the lists share memory (judged by extents)?
  bool overlaps(const BlockList &other) const;
  // For output: could two of its elements share memory?
  bool overlaps_itself() const;
  // Some block is not one run of elements.
  bool strided() const {
    return std::ranges::any_of(blocks(), [](const Block &block) { return block.layout.has_value(); });
  }
  // fn(data, bytes, offset in bytes) for every block that is not empty.
  template <class Fn>
  void each(Fn fn) const {
    uint64_t offset = 0;
    for (const Block &block : blocks()) {
      if (block.count > 0) fn(block.data, block.count * element_, offset);
      offset += block.count * element_;
    }
  }

 private:
  struct Block {
    std::byte *data;
    uint64_t count;
    std::optional<Layout> layout;
  };
  void extent(const Block &block, const std::byte *&low, const std::byte *&high) const;
  std::span<const Block> blocks() const {
    return one_ ? std::span<const Block>(&*one_, 1) : std::span<const Block>(many_);
  }

  size_t element_ = 1;
  uint64_t count_ = 0;
  bool contiguous_ = true;
  std::byte *base_ = nullptr;
  std::optional<Block> one_;  // most lists have one block: it needs no allocation
  std::vector<Block> many_;
};

}  // namespace dicomm
