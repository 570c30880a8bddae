// What a user may set about RDMA, and its defaults.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace dicomm {

struct VerbsSettings {
  std::string library;               // "" for libibverbs.so.1
  std::vector<std::string> devices;  // "NAME" or "NAME:PORT", in the order of use; empty: every active port
  int gid_index = -1;                // -1: chosen by type and address
  uint16_t pkey_index = 0;
  uint8_t service_level = 0;
  uint8_t traffic_class = 0;
  // Time-out exponent: 4.096 us * 2^timeout until a packet is sent again. 14 repeats without need on busy
  // hosts.
  uint8_t timeout = 18;
  // Some drivers take 7 for "for ever": a dead link would never be noticed.
  uint8_t retry_count = 6;
  uint32_t mtu = 4096;        // at most; the ports of both sides may lower it
  uint32_t queue_pairs = 1;   // for large messages, per port and peer; small ones have one of their own
  uint32_t queue_depth = 32;  // frames under way per peer and direction: a power of two
  bool direct = true;         // network cards read and write the messages' own memory
  bool staged = true;         // through registered buffers of our own, where that cannot be had
  bool tcp = true;            // over the socket, while RDMA does not work
};

// "devices=mlx5_0:1+mlx5_1, timeout=20": names above but for the last three. INVALID_ARGUMENT
// names what is unknown or out of range.
Status parse_verbs_settings(const std::string &text, VerbsSettings &out);

}  // namespace dicomm
