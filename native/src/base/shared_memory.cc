#include "base/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace dicomm {

Status SharedMemory::create(size_t bytes) {
  bytes_ = bytes;
  fd_.reset(::memfd_create("dicomm", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd_.valid()) return Status::from_errno(errno, "cannot create shared memory");
  if (::ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return Status::from_errno(errno, "cannot size shared memory of ", bytes, " bytes");
  return map();
}

Status SharedMemory::adopt(UniqueFd fd, size_t bytes) {
  bytes_ = bytes;
  fd_ = std::move(fd);
  struct stat info{};
  const int seals = ::fcntl(fd_.get(), F_GET_SEALS);
  if (::fstat(fd_.get(), &info) != 0 || info.st_size != static_cast<off_t>(bytes) || seals < 0 ||
      (seals & F_SEAL_SHRINK) == 0)
    return Status::make(DICOMM_PROTOCOL, "the peer's shared memory has another size or is not sealed");
  return map();
}

Status SharedMemory::map() {
  void *memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (memory == MAP_FAILED) return Status::from_errno(errno, "cannot map shared memory");
  data_ = static_cast<std::byte *>(memory);
  return {};
}

void SharedMemory::unmap() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
  data_ = nullptr;
}

}  // namespace dicomm
