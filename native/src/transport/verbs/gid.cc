#include "transport/verbs/gid.h"

#include <netinet/in.h>

#include <cstring>

namespace dicomm {

namespace {

bool is_zero(const ibv::Gid &gid) { return gid.words[0] == 0 && gid.words[1] == 0; }

bool is_mapped_ipv4(const ibv::Gid &gid) {
  constexpr uint8_t kPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, kPrefix, sizeof(kPrefix)) == 0;
}

size_t network_bytes(const ibv::Gid &gid) { return is_mapped_ipv4(gid) ? 15 : 8; }

bool is_link_local(const ibv::Gid &gid) {
  if (is_mapped_ipv4(gid)) return gid.raw[12] == 169 && gid.raw[13] == 254;
  return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80;
}

int rank(const ibv::GidEntry &entry, const ibv::Gid &address) {
  if (entry.gid_type != ibv::gid_type_roce_v2) return 1;
  if (!is_zero(address) && same(entry.gid, address)) return 5;
  if (is_link_local(entry.gid)) return 2;
  return is_mapped_ipv4(entry.gid) ? 4 : 3;
}

}  // namespace

bool same(const ibv::Gid &a, const ibv::Gid &b) {
  return a.words[0] == b.words[0] && a.words[1] == b.words[1];
}

bool same_network(const ibv::Gid &a, const ibv::Gid &b) {
  return std::memcmp(a.raw, b.raw, std::max(network_bytes(a), network_bytes(b))) == 0;
}

int choose_gid(const std::vector<ibv::GidEntry> &table, bool infiniband, const ibv::Gid &address) {
  int best = -1, best_rank = 0;
  for (const ibv::GidEntry &entry : table) {
    if (is_zero(entry.gid)) continue;
    if (infiniband) return static_cast<int>(entry.gid_index);
    if (const int of_entry = rank(entry, address); of_entry > best_rank) {
      best = static_cast<int>(entry.gid_index);
      best_rank = of_entry;
    }
  }
  return best;
}

ibv::Gid gid_of(const SocketAddress &address) {
  ibv::Gid gid{};
  if (address.family() == AF_INET6) {
    std::memcpy(gid.raw, &reinterpret_cast<const sockaddr_in6 &>(address.storage).sin6_addr, sizeof(gid.raw));
  } else if (address.family() == AF_INET) {
    gid.raw[10] = gid.raw[11] = 0xff;
    std::memcpy(gid.raw + 12, &reinterpret_cast<const sockaddr_in &>(address.storage).sin_addr, 4);
  }
  return gid;
}

}  // namespace dicomm
