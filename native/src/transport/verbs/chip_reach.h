// How cards reach the memory of a chip: found out by trying, once for all ports.
//
//   dma-buf       the chip's driver hands the memory over as a file descriptor (Linux 5.12, rdma-core 34)
//   peer memory   the kernel knows the chip's addresses (nvidia-peermem)
//   host memory   the chip's memory is the host's
//
// Where a way is missing the kernel refuses to register; nothing else happens. None is taken where the chip's
// run time does not promise that work on the chip sees what cards have written.
#pragma once

#include <string>

#include "device/device.h"
#include "transport/verbs/port.h"

namespace dicomm {

class ChipReach {
 public:
  enum class Way { none, dma_buf, peer_memory, host_memory };

  // Takes a little of the chip's memory for the trial. May block.
  void find_out(const Ports &ports, Device &device);
  void leave_out(const std::string &why) { words_ = "no: " + why; }
  Way way() const { return way_; }
  // "dma-buf", or "no: " and why.
  const std::string &words() const { return words_; }
  // Of memory that is no host memory. May block. The failure is that of the vendor or of ibv_reg_*mr.
  Status register_memory(const VerbsPort &port, const std::byte *data, size_t bytes, int access,
                         ibv::Mr *&out) const;
  // Device::allocation_number, if the whole range is in one allocation.
  uint64_t allocation_of(const std::byte *data, size_t bytes) const;

 private:
  Device *device_ = nullptr;
  Way way_ = Way::none;
  std::string words_ = "no: there is no chip";
};

}  // namespace dicomm
