#include "transport/verbs/rails.h"

#include <algorithm>

#include "transport/verbs/gid.h"

namespace dicomm {

namespace {

template <class Wanted>
std::vector<uint32_t> indices(std::span<const Rail> ports, Wanted wanted) {
  std::vector<uint32_t> out;
  for (uint32_t i = 0; i < ports.size(); ++i) {
    if (ports[i].up && wanted(ports[i])) out.push_back(i);
  }
  return out;
}

}  // namespace

std::vector<uint32_t> choose_rails(std::span<const Rail> ports, uint32_t each) {
  std::vector<uint32_t> order = indices(ports, [](const Rail &port) { return !port.suspect; });
  const std::vector<uint32_t> suspects = indices(ports, [](const Rail &port) { return port.suspect; });
  order.insert(order.end(), suspects.begin(), suspects.end());
  if (order.empty()) return {};
  std::vector<uint32_t> out{order[0]};
  for (uint32_t i = 0; i < each; ++i) out.insert(out.end(), order.begin(), order.end());
  return out;
}

std::vector<uint32_t> opposite_rails(std::span<const Rail> ports, const Setup &peer) {
  std::vector<uint32_t> out;
  for (uint32_t pair = 0; pair < peer.queue_pairs; ++pair) {
    const uint32_t theirs = peer.pair[pair].port;
    const ibv::Gid &gid = peer.port[theirs].gid;
    std::vector<uint32_t> can = indices(ports, [&](const Rail &port) { return same_network(port.gid, gid); });
    if (can.empty()) can = indices(ports, [](const Rail &) { return true; });
    if (can.empty()) return {};
    const bool same_index = std::find(can.begin(), can.end(), theirs) != can.end();
    out.push_back(same_index ? theirs : can[pair % can.size()]);
  }
  return out;
}

}  // namespace dicomm
