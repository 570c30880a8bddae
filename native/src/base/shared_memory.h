// SharedMemory: a mapping that processes of one host share.
//
// A memfd that only they hold: nothing has a name, nothing is left behind, /dev/shm is not used. Sealed, so
// that none can shrink it under the others. What the others write there is checked before it is used.
#pragma once

#include <cstddef>

#include "base/error.h"
#include "base/unique_fd.h"

namespace dicomm {

class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(const SharedMemory &) = delete;
  ~SharedMemory() { unmap(); }
  // Zeros.
  Status create(size_t bytes);
  // Maps what another process has made; PROTOCOL when it has another size or is not sealed.
  Status adopt(UniqueFd fd, size_t bytes);
  void unmap();
  std::byte *data() const { return data_; }
  int fd() const { return fd_.get(); }
  void close_fd() { fd_.reset(); }  // the mapping stays

 private:
  Status map();

  UniqueFd fd_;
  std::byte *data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace dicomm
