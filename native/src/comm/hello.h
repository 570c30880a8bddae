// Hello: what each rank publishes of itself when a communicator is made.
#pragma once

#include <span>
#include <vector>

#include "topology/topology.h"
#include "transport/transport.h"

namespace dicomm {

struct Hello {
  PeerAddress address;
  bool keyed = false;  // the job has a secret: no key is published
  RankInfo info;       // without host_index and island_index, which follow from all ranks' records
};

std::vector<std::byte> write_hello(const Hello &hello);
// `rank` published the record. PROTOCOL, naming the rank and its host as far as the record tells: another
// protocol, another version of dicomm, or what no dicomm writes.
Status read_hello(int rank, std::span<const std::byte> record, Hello &out);

}  // namespace dicomm
