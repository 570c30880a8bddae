// BlockList: an operation's input or output, a list of blocks that a schedule sees as one run of elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
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
  size_t size() const { return blocks_.size(); }
  bool empty() const { return blocks_.empty(); }
  uint64_t count_of(size_t block) const { return blocks_[block].count; }
  // The blocks lie one after another without gaps, at base().
  bool contiguous() const { return contiguous_; }
  std::byte *base() const { return blocks_.empty() ? nullptr : blocks_.front().data; }
  void pack(std::byte *into) const;
  void unpack(const std::byte *from) const;
  // Do any two elements of the lists share memory (judged by extents)?
  bool overlaps(const BlockList &other) const;
  // For output: could two of its elements share memory?
  bool overlaps_itself() const;

 private:
  struct Block {
    std::byte *data;
    uint64_t count;
    std::optional<Layout> layout;
  };
  void extent(const Block &block, const std::byte *&low, const std::byte *&high) const;

  size_t element_ = 1;
  uint64_t count_ = 0;
  bool contiguous_ = true;
  std::vector<Block> blocks_;
};

}  // namespace dicomm
