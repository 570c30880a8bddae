#include "comm/chip.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>

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

ChipInfo simulated_chip(const ChipOptions &options) {
  ChipInfo chip;
  chip.simulated = true;
  chip.name = "simulated " + options.vendor;
  chip.arch = "simulated";
  chip.library = options.vendor + "-ccl";
  chip.library_version = 1;
  chip.memory_bytes = options.simulation.memory_bytes;
  chip.dtypes = options.simulation.dtypes & all_dtypes();
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
          .simulation = simulated ? &simulation_out : nullptr};
}

Status describe_chip(const ChipOptions &options, ChipInfo &out) {
  DICOMM_TRY(options.check());
  if (options.simulated) {
    out = simulated_chip(options);
  } else if (options.vendor == "cpu") {
    out = host_processors();
  } else {
    return Status::make(DICOMM_NOT_SUPPORTED, "chips of vendor '", options.vendor, "' are not supported");
  }
  out.vendor = options.vendor;
  out.index = options.index;
  out.island = options.island;
  out.role = options.role;
  return {};
}

}  // namespace dicomm
