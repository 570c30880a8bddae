#include "transport/shm/segment.h"

namespace dicomm {
namespace {

constexpr uint64_t kMagic = 0x316d6873'6d6f6364;  // "dcomshm1"
constexpr size_t kPage = 4096;
constexpr size_t kHeaderSpace = (sizeof(SharedHeader) + kPage - 1) / kPage * kPage;
constexpr size_t kSegmentBytes = kHeaderSpace + 2 * kRingBytes;

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free,
              "atomics in shared memory must not need a lock of one process");

}  // namespace

Status Segment::create() {
  DICOMM_TRY(memory_.create(kSegmentBytes));
  header_ = reinterpret_cast<SharedHeader *>(memory_.data());  // zero pages are valid, empty atomics
  header_->magic = kMagic;
  header_->ring_bytes = kRingBytes;
  return {};
}

Status Segment::adopt(UniqueFd fd) {
  DICOMM_TRY(memory_.adopt(std::move(fd), kSegmentBytes));
  header_ = reinterpret_cast<SharedHeader *>(memory_.data());
  if (header_->magic == kMagic && header_->ring_bytes == kRingBytes) return {};
  unmap();
  return Status::make(DICOMM_PROTOCOL, "the peer's shared memory has another layout");
}

void Segment::unmap() {
  memory_.unmap();
  header_ = nullptr;
}

std::byte *Segment::ring(int side) const {
  return memory_.data() + kHeaderSpace + static_cast<size_t>(side) * kRingBytes;
}

}  // namespace dicomm
