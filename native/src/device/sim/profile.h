// What a simulated chip is like, as its Device and its collective library read it.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"

namespace dicomm {

struct SimProfile {
  std::string brand;  // its vendor
  double tflops = 0;
  uint64_t memory_bytes = 0;   // 0: no limit
  double copy_gbs = 0;         // 1e9 bytes per second each way between host and chip; 0: as fast as it goes
  double copy_latency_us = 0;  // each copy takes that much longer
  double link_gbs = 0;         // to other chips of the brand; 0: as fast as it goes
  uint64_t dtypes = ~uint64_t{0};  // bit 1 << DICOMM_<dtype>: the library knows it
  bool avg = true;                 // of the library
  bool send_recv = true;           // of the library
  // The chip breaks at this piece of work (copies and reductions, from 0); -1: never. Not part of the ABI.
  int64_t breaks_at = -1;
};

// INVALID_ARGUMENT when chip.simulation is not one.
Status read_profile(const dicomm_chip &chip, SimProfile &out);

}  // namespace dicomm
