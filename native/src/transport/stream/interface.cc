#include "transport/stream/interface.h"

#include <charconv>

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <array>
#include <cstring>
#include <memory>
#include <string_view>

namespace dicomm {
namespace {

struct Candidate {
  std::string name;
  unsigned flags = 0;
  SocketAddress address;
};

// Lower is better: link-local IPv6 works only on one cable.
int rank_of(const SocketAddress &address) {
  if (address.family() == AF_INET) return 0;
  const auto &v6 = reinterpret_cast<const sockaddr_in6 &>(address.storage);
  return IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr) ? 2 : 1;
}

bool is_bridge(std::string_view name) {
  constexpr std::array<std::string_view, 7> kBridges = {"docker", "br-",     "veth", "virbr",
                                                        "cni",    "flannel", "lxc"};
  for (const std::string_view prefix : kBridges)
    if (name.starts_with(prefix)) return true;
  return false;
}

Status list_interfaces(std::vector<Candidate> &out) {
  ifaddrs *first = nullptr;
  if (::getifaddrs(&first) != 0) return Status::from_errno(errno, "cannot list the network interfaces");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs *)> owner(first, ::freeifaddrs);
  for (const ifaddrs *i = first; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0) continue;
    const int family = i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    Candidate &candidate = out.emplace_back();
    candidate.name = i->ifa_name;
    candidate.flags = i->ifa_flags;
    candidate.address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&candidate.address.storage, i->ifa_addr, candidate.address.length);
  }
  return {};
}

Status address_of_interface(const std::string &name, const std::vector<Candidate> &all, SocketAddress &out) {
  const Candidate *best = nullptr;
  std::string names;
  for (const Candidate &candidate : all) {
    if (names.find(candidate.name) == std::string::npos) names += " " + candidate.name;
    if (candidate.name != name) continue;
    if (best == nullptr || rank_of(candidate.address) < rank_of(best->address)) best = &candidate;
  }
  if (best == nullptr)
    return Status::make(
        DICOMM_INVALID_ARGUMENT, "interface '", name,
        "' is neither a numeric address nor an interface that is up and has an address; those are:", names);
  out = best->address;
  return {};
}

Status address_towards(const std::string &host, SocketAddress &out) {
  std::vector<SocketAddress> targets;
  DICOMM_TRY(resolve(host, 9, targets));
  int error = 0;
  for (const SocketAddress &target : targets) {
    const UniqueFd fd(::socket(target.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (fd.valid() && ::connect(fd.get(), target.get(), target.length) == 0) {
      out = local_address(fd.get());
      out.set_port(0);
      return {};
    }
    error = errno;
  }
  return Status::from_errno(error, "no interface of this machine reaches host '", host, "'");
}

// Debian maps a host's own name to 127.0.1.1: the route to it says nothing about how others reach this host.
bool own_name(const SocketAddress &address) {
  return address.family() == AF_INET && address.host().starts_with("127.") && address.host() != "127.0.0.1";
}

}  // namespace

Status choose_address(const std::string &interface, const std::string &route_to, SocketAddress &out) {
  if (!interface.empty() && parse_numeric(interface, 0, out).ok()) return {};
  if (interface.empty() && !route_to.empty()) {
    DICOMM_TRY(address_towards(route_to, out));
    if (!own_name(out)) return {};
  }

  std::vector<Candidate> all;
  DICOMM_TRY(list_interfaces(all));
  if (!interface.empty()) return address_of_interface(interface, all, out);
  const Candidate *best = nullptr;
  for (const Candidate &candidate : all) {
    if ((candidate.flags & IFF_LOOPBACK) != 0 || is_bridge(candidate.name)) continue;
    if (best == nullptr || rank_of(candidate.address) < rank_of(best->address)) best = &candidate;
  }
  if (best == nullptr) return parse_numeric("127.0.0.1", 0, out);
  out = best->address;
  return {};
}

std::string host_and_port(const SocketAddress &listener) {
  const std::string host = listener.host();
  return concat(host.substr(0, host.find('%')), " ", listener.port());
}

Status parse_host_and_port(std::string_view text, const SocketAddress &own, SocketAddress &out) {
  const size_t space = text.find(' ');
  unsigned port = 0;
  if (space != std::string_view::npos)
    std::from_chars(text.data() + space + 1, text.data() + text.size(), port);
  if (port == 0 || port > 65535)
    return Status::make(DICOMM_CONNECT_FAILED, "its address '", text, "' is not of the form \"HOST PORT\"");
  DICOMM_TRY(parse_numeric(std::string(text.substr(0, space)), static_cast<uint16_t>(port), out));
  if (out.family() == AF_INET6 && own.family() == AF_INET6) {
    auto &v6 = reinterpret_cast<sockaddr_in6 &>(out.storage);
    if (IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr))
      v6.sin6_scope_id = reinterpret_cast<const sockaddr_in6 &>(own.storage).sin6_scope_id;
  }
  return {};
}

}  // namespace dicomm
