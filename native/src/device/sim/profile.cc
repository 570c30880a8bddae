#include "device/sim/profile.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace dicomm {

namespace {

Status lack(std::string_view word, SimProfile &out) {
  if (word == "avg") {
    out.avg = false;
  } else if (word == "send_recv") {
    out.send_recv = false;
  } else if (!word.empty()) {
    return Status::make(DICOMM_INVALID_ARGUMENT, "simulated chip ", out.brand, ": its library cannot lack '",
                        word, "', only avg and send_recv");
  }
  return {};
}

}  // namespace

Status read_profile(const dicomm_chip &chip, SimProfile &out) {
  out = {};
  out.brand = chip.vendor == nullptr ? "" : chip.vendor;
  if (out.brand.empty() || chip.simulation == nullptr)
    return Status::make(DICOMM_INVALID_ARGUMENT, "a simulated chip needs a brand and a simulation");
  dicomm_simulation given{};
  std::memcpy(&given, chip.simulation, std::min(chip.simulation->size, sizeof given));
  for (const double value : {given.tflops, given.copy_gbs, given.copy_latency_us, given.link_gbs})
    if (!(value >= 0 && value < 1e12))
      return Status::make(DICOMM_INVALID_ARGUMENT, "simulated chip ", out.brand, ": ", value,
                          " is not a speed or a latency");
  out.tflops = given.tflops;
  out.memory_bytes = given.memory_bytes;
  out.copy_gbs = given.copy_gbs;
  out.copy_latency_us = given.copy_latency_us;
  out.link_gbs = given.link_gbs;
  out.dtypes = given.dtypes;
  std::string_view lacks = given.lacks == nullptr ? "" : given.lacks;
  while (!lacks.empty()) {
    const size_t end = std::min(lacks.find(','), lacks.size());
    DICOMM_TRY(lack(lacks.substr(0, end), out));
    lacks.remove_prefix(std::min(end + 1, lacks.size()));
  }
  return {};
}

}  // namespace dicomm
