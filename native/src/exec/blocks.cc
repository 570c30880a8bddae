#include "exec/blocks.h"

#include <cstring>

namespace dicomm {

namespace {

constexpr int64_t kMaxDimensions = 64;

// `layout` stays empty for contiguous blocks.
Status check(const dicomm_block &given, int32_t i, size_t element, const char *what,
             std::optional<Layout> &layout) {
  if (given.count < 0 || given.count > INT64_MAX / static_cast<int64_t>(element)) {
    return Status::make(DICOMM_INVALID_ARGUMENT, what, " block ", i, " has count ", given.count);
  }
  if (given.count > 0 && given.data == nullptr) {
    return Status::make(DICOMM_INVALID_ARGUMENT, what, " block ", i, " has ", given.count,
                        " elements and a null address");
  }
  if (given.layout == nullptr || given.count == 0) return {};
  if (given.layout->ndim < 0 || given.layout->ndim > kMaxDimensions) {
    return Status::make(DICOMM_INVALID_ARGUMENT, what, " block ", i, " has ", given.layout->ndim,
                        " dimensions");
  }
  Layout found = Layout::from(*given.layout, element);
  if (found.count() != given.count) {
    return Status::make(DICOMM_INVALID_ARGUMENT, what, " block ", i, " has count ", given.count,
                        " and a layout of ", found.count(), " elements");
  }
  if (!found.contiguous(element)) layout = std::move(found);
  return {};
}

}  // namespace

Status BlockList::from(const dicomm_block *blocks, int32_t n, size_t element, const char *what,
                       BlockList &out) {
  out.element_ = element;
  if (n < 0 || (n > 0 && blocks == nullptr)) {
    return Status::make(DICOMM_INVALID_ARGUMENT, what, " blocks are missing");
  }
  if (n != 1) out.many_.reserve(static_cast<size_t>(n));
  for (int32_t i = 0; i < n; ++i) {
    Block block{static_cast<std::byte *>(blocks[i].data), static_cast<uint64_t>(blocks[i].count), {}};
    DICOMM_TRY(check(blocks[i], i, element, what, block.layout));
    if (block.layout) out.contiguous_ = false;
    // Empty blocks may lie anywhere; they do not break a run.
    if (block.count > 0 && out.count_ > 0 && block.data != out.base_ + out.bytes()) out.contiguous_ = false;
    if (out.count_ == 0 && (i == 0 || block.count > 0)) out.base_ = block.data;
    out.count_ += block.count;
    if (n == 1) {
      out.one_ = std::move(block);
    } else {
      out.many_.push_back(std::move(block));
    }
  }
  return {};
}

void BlockList::pack(std::byte *into) const {
  for (const Block &block : blocks()) {
    if (block.count == 0) continue;
    const uint64_t bytes = block.count * element_;
    if (block.layout) {
      dicomm::pack(into, block.data, *block.layout, element_);
    } else {
      std::memcpy(into, block.data, bytes);
    }
    into += bytes;
  }
}

void BlockList::unpack(const std::byte *from) const {
  for (const Block &block : blocks()) {
    if (block.count == 0) continue;
    const uint64_t bytes = block.count * element_;
    if (block.layout) {
      dicomm::unpack(block.data, *block.layout, from, element_);
    } else {
      std::memcpy(block.data, from, bytes);
    }
    from += bytes;
  }
}

void BlockList::extent(const Block &block, const std::byte *&low, const std::byte *&high) const {
  int64_t first = 0, last = static_cast<int64_t>(block.count * element_);
  if (block.layout) block.layout->extent(element_, first, last);
  low = block.data + first;
  high = block.data + last;
}

bool BlockList::overlaps(const BlockList &other) const {
  for (const Block &mine : blocks()) {
    if (mine.count == 0) continue;
    const std::byte *low, *high;
    extent(mine, low, high);
    for (const Block &theirs : other.blocks()) {
      if (theirs.count == 0) continue;
      const std::byte *other_low, *other_high;
      other.extent(theirs, other_low, other_high);
      if (low < other_high && other_low < high) return true;
    }
  }
  return false;
}

bool BlockList::overlaps_itself() const {
  if (contiguous_) return false;
  const std::span<const Block> all = blocks();
  for (size_t i = 0; i < all.size(); ++i) {
    const Block &block = all[i];
    if (block.count == 0) continue;
    if (block.layout && block.layout->overlaps_itself(element_)) return true;
    // Strided blocks may interleave without sharing an element; only plain ones are compared.
    if (block.layout) continue;
    for (size_t j = i + 1; j < all.size(); ++j) {
      const Block &other = all[j];
      if (other.count == 0 || other.layout) continue;
      if (block.data < other.data + other.count * element_ &&
          other.data < block.data + block.count * element_) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace dicomm
