#include "comm/chip.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>

#include "base/boot_id.h"
#include "ccl/registry.h"
#include "device/registry.h"

namespace dicomm {

namespace {

constexpr size_t kMostWord = 200;  // of a vendor's or an island's name

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) {
      const size_t colon = line.find(": ");
      return colon == std::string::npos ? "" : line.substr(colon + 2, kMostWord);
    }
  }
  return "";  // not every architecture has such a line
}

ChipInfo host_processors() {
  ChipInfo chip;
  utsname system{};
  uname(&system);
  chip.arch = system.machine;
  chip.name = processor_name();
  chip.memory_bytes =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  chip.dtypes = all_dtypes();
  return chip;
}

bool floating(int dtype) { return dtype >= DICOMM_FLOAT8_E4M3FN && dtype <= DICOMM_FLOAT64; }

// Which dtypes the library reduces as dicomm does: vendors' own min and max lose NaN.
uint64_t reduced_by(const CclCapabilities &library, dicomm_reduce op, bool simulated) {
  const bool loses_nan = !simulated && (op == DICOMM_MIN || op == DICOMM_MAX);
  uint64_t dtypes = 0;
#define DICOMM_BIT(name, value, size)                                                \
  if (library.reduces(DICOMM_##name, op) && !(loses_nan && floating(DICOMM_##name))) \
    dtypes |= uint64_t{1} << value;
  DICOMM_DTYPE_LIST(DICOMM_BIT)
#undef DICOMM_BIT
  return dtypes;
}

ChipInfo chip_of(const ChipOptions &options, const Device &device, const Ccl &ccl) {
  const CclCapabilities library = ccl.capabilities();
  ChipInfo chip;
  if (options.simulated || options.vendor != "cpu") {
    chip.simulated = options.simulated;
    chip.name = device.describe();
    chip.arch = options.simulated ? "simulated" : "";
    chip.memory_bytes = options.simulation.memory_bytes;
    chip.dtypes = options.simulated ? options.simulation.dtypes & all_dtypes() : all_dtypes();
  } else {
    chip = host_processors();
  }
  chip.library = ccl.name();
  chip.library_version = static_cast<uint32_t>(library.version);
  for (size_t op = 0; op < kReduces; ++op) {
    chip.reduces[op] = reduced_by(library, static_cast<dicomm_reduce>(op), options.simulated);
  }
  chip.send_recv = library.send_recv;
  chip.converts = device.capabilities().reduces;
  if (const std::string bus = device.bus_address(); !bus.empty())
    chip.id = concat("PCI ", bus, " of boot ", boot_id());
  return chip;
}

}  // namespace

Status ChipOptions::check() const {
  if (role != "worker" && role != "reducer") {
    return Status::make(DICOMM_INVALID_ARGUMENT, "role '", role, "' is neither worker nor reducer");
  }
  if (index < 0) return Status::make(DICOMM_INVALID_ARGUMENT, "device index ", index, " is negative");
  for (const std::string &word : {vendor, island}) {
    if (word.size() > kMostWord) {
      return Status::make(DICOMM_INVALID_ARGUMENT, "'", word.substr(0, 20), "...' has ", word.size(),
                          " bytes; the name of a vendor or an island may have ", kMostWord);
    }
  }
  return {};
}

dicomm_chip ChipOptions::view(dicomm_simulation &simulation_out) const {
  simulation_out = simulation;
  simulation_out.size = sizeof simulation_out;
  simulation_out.lacks = lacks.c_str();
  return {.size = sizeof(dicomm_chip),
          .vendor = vendor.c_str(),
          .index = index,
          .island = island.c_str(),
          .role = role.c_str(),
          .simulation = simulated ? &simulation_out : nullptr,
          .library = library.c_str()};
}

Status open_chip(const ChipOptions &options, const std::string &address, OpenedChip &out) {
  DICOMM_TRY(options.check());
  dicomm_simulation simulation;
  const dicomm_chip chip = options.view(simulation);
  DICOMM_TRY(open_device(chip, out.device));
  if (out.device) {
    DICOMM_TRY(open_ccl(chip, address, out.ccl));
    out.info = chip_of(options, *out.device, *out.ccl);
  } else {
    out.info = host_processors();
  }
  out.info.vendor = options.vendor;
  out.info.index = options.index;
  out.info.island = options.island;
  out.info.role = options.role;
  return {};
}

}  // namespace dicomm
