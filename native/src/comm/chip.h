// The chip of a Context: what the caller asked for, with strings of its own, and what is there.
#pragma once

#include <memory>
#include <string>

#include "ccl/ccl.h"
#include "device/device.h"
#include "topology/topology.h"

namespace dicomm {

// The dicomm_chip of the context's options.
struct ChipOptions {
  std::string vendor = "cpu";
  int32_t index = 0;
  std::string island;
  std::string role = "worker";
  std::string library;
  bool simulated = false;
  dicomm_simulation simulation{};  // when simulated; `lacks` is below
  std::string lacks;

  // INVALID_ARGUMENT for a role, index or word that cannot be.
  Status check() const;
  // The same as a dicomm_chip, which points into this and `simulation_out`.
  dicomm_chip view(dicomm_simulation &simulation_out) const;
};

// Opens the chip and its collective library (none for the host's processors, unless one is asked for) and
// tells what a rank can say of them. address: numeric, of this process. May block.
struct OpenedChip {
  std::unique_ptr<Device> device;
  std::unique_ptr<Ccl> ccl;
  ChipInfo info;
};
Status open_chip(const ChipOptions &options, const std::string &address, OpenedChip &out);
// What it can say of its host: the name, network cards and NUMA node, as far as the kernel tells.
void describe_host(RankInfo &out);

}  // namespace dicomm
