#include "transport/shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

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
  fd_.reset(::memfd_create("dicomm", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd_.valid()) return Status::from_errno(errno, "cannot create shared memory");
  // Sealed, so that neither side can shrink it under the other.
  if (::ftruncate(fd_.get(), kSegmentBytes) != 0 ||
      ::fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return Status::from_errno(errno, "cannot size shared memory of ", kSegmentBytes, " bytes");
  DICOMM_TRY(map());
  header_->magic = kMagic;
  header_->ring_bytes = kRingBytes;
  return {};
}

Status Segment::adopt(UniqueFd fd) {
  fd_ = std::move(fd);
  struct stat info{};
  const int seals = ::fcntl(fd_.get(), F_GET_SEALS);
  if (::fstat(fd_.get(), &info) != 0 || info.st_size != static_cast<off_t>(kSegmentBytes) || seals < 0 ||
      (seals & F_SEAL_SHRINK) == 0)
    return Status::make(DICOMM_PROTOCOL, "the peer's shared memory has another size or is not sealed");
  DICOMM_TRY(map());
  if (header_->magic == kMagic && header_->ring_bytes == kRingBytes) return {};
  unmap();
  return Status::make(DICOMM_PROTOCOL, "the peer's shared memory has another layout");
}

Status Segment::map() {
  void *memory = ::mmap(nullptr, kSegmentBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (memory == MAP_FAILED) return Status::from_errno(errno, "cannot map shared memory");
  header_ = static_cast<SharedHeader *>(memory);  // zero pages are valid, empty atomics
  return {};
}

void Segment::unmap() {
  if (header_ != nullptr) ::munmap(header_, kSegmentBytes);
  header_ = nullptr;
}

std::byte *Segment::ring(int side) const {
  return reinterpret_cast<std::byte *>(header_) + kHeaderSpace + static_cast<size_t>(side) * kRingBytes;
}

}  // namespace dicomm
