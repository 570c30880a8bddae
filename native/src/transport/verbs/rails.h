// Which of the ports each queue pair of a connection uses. Pure.
#pragma once

#include <span>
#include <vector>

#include "transport/verbs/frame.h"

namespace dicomm {

// A port of ours.
struct Rail {
  bool up;
  bool suspect;  // a queue pair over it failed last time
  ibv::Gid gid;
};

// Of the side that begins: the port of the queue pair for frames, then those of the others, `each` over every
// port that is up. Suspects come last. Empty: no port is up.
std::vector<uint32_t> choose_rails(std::span<const Rail> ports, uint32_t each);
// Of the side that answers, to each of the peer's: a port in the network of theirs, of those the one with
// theirs' index, else in turn. Where no port is in the peer's network, all are as good.
std::vector<uint32_t> opposite_rails(std::span<const Rail> ports, const Setup &peer);

}  // namespace dicomm
