#include "transport/verbs/chip_reach.h"

#include "base/unique_fd.h"

namespace dicomm {

namespace {

constexpr size_t kTrial = 64 << 10;

}  // namespace

void ChipReach::find_out(const Ports &ports, Device &device) {
  device_ = &device;
  if (device.capabilities().unified) {
    way_ = Way::host_memory;
    words_ = "host memory";
    return;
  }
  if (!device.capabilities().sees_card_writes) {
    words_ = concat("no: nothing promises that work on ", device.describe(), " sees what cards write");
    return;
  }
  std::unique_ptr<Allocation> memory;
  if (const Status status = device.allocate(kTrial, memory); !status.ok()) {
    words_ = concat("no: ", status.sentence());
    return;
  }
  std::string refusals;
  for (const auto &[way, name] : {std::pair{Way::dma_buf, "dma-buf"}, {Way::peer_memory, "peer memory"}}) {
    way_ = way;
    Status status;
    for (size_t i = 0; i < ports.size() && status.ok(); ++i) {
      ibv::Mr *region = nullptr;
      status = register_memory(*ports[i], static_cast<const std::byte *>(memory->data()), kTrial, kBothWays,
                               region);
      if (status.ok()) ports[i]->deregister(region);
    }
    if (status.ok()) {
      words_ = name;
      return;
    }
    refusals += concat(refusals.empty() ? "by " : "; by ", name, ": ", status.sentence());
  }
  way_ = Way::none;
  words_ = "no: " + refusals;
}

Status ChipReach::register_memory(const VerbsPort &port, const std::byte *data, size_t bytes, int access,
                                  ibv::Mr *&out) const {
  if (way_ == Way::peer_memory)
    return port.register_memory(const_cast<std::byte *>(data), bytes, access, out);
  DmaBuf memory;
  DICOMM_TRY(device_->export_dmabuf(data, bytes, memory));
  const UniqueFd fd(memory.fd);  // the registration holds the memory itself
  return port.register_dmabuf(fd.get(), memory.offset, data, bytes, access, out);
}

uint64_t ChipReach::allocation_of(const std::byte *data, size_t bytes) const {
  const uint64_t number = device_->allocation_number(data);
  return device_->allocation_number(data + bytes - 1) == number ? number : 0;
}

}  // namespace dicomm
