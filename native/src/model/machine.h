// The machine a prediction is about: what moving and combining bytes costs. Pure data.
//
// A rank has one way out, one way in and one place for arithmetic; a host has a NIC with one way out and one
// way in. Each of them serves in order of arrival: `overhead` per message (not the NIC) and then its bytes. A
// message's bytes go on while the rest still comes, so that a lone one takes
//     overhead + latency + bytes / the slowest rate on its way + overhead.
// Messages above eager_bytes ask first and leave when the receiver has answered: two more latencies.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "topology/topology.h"

namespace dicomm::model {

using Picoseconds = int64_t;  // whole numbers: what happens at one time does so exactly

// Times in seconds, rates in bytes per second. The defaults are those of docs/reference/explain.md, which
// says where they come from.
struct Machine {
  double local_latency = 4e-6;
  double remote_latency = 34e-6;
  double overhead = 1e-6;  // of one message, at each end
  double local_bandwidth = 2.8e9;
  double remote_bandwidth = 4e9;
  double nic_bandwidth = 12.5e9;  // of a host, each way
  double copy_bandwidth = 3.6e9;  // bytes of the result, as below
  double reduce_bandwidth = 11e9;
  uint64_t eager_bytes = 64 << 10;

  Picoseconds latency(bool remote) const { return time(remote ? remote_latency : local_latency); }
  Picoseconds overhead_time() const { return time(overhead); }
  // Of a rank's way out or in.
  double rate(bool remote) const { return remote ? remote_bandwidth : local_bandwidth; }
  // The slowest on the way of a message.
  double path_rate(bool remote) const {
    return remote && nic_bandwidth < remote_bandwidth ? nic_bandwidth : rate(remote);
  }

  static Picoseconds time(double seconds) { return static_cast<Picoseconds>(seconds * 1e12 + 0.5); }
  static Picoseconds time(uint64_t bytes, double rate) { return time(static_cast<double>(bytes) / rate); }

  Status check() const;  // INVALID_ARGUMENT names a negative time or a rate that is not positive
};

inline bool remote(const Topology &topology, int a, int b) {
  return topology.ranks[static_cast<size_t>(a)].host_index !=
         topology.ranks[static_cast<size_t>(b)].host_index;
}

}  // namespace dicomm::model
