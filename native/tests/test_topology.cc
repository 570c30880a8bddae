#include <doctest/doctest.h>

#include "comm/bootstrap.h"

using namespace dicomm;

namespace {

PeerAddress peer(const char *host, const char *address) {
  PeerAddress out;
  out.host = host;
  out.address = address;
  return out;
}

std::vector<int> numbers(const std::vector<PeerAddress> &peers) {
  std::vector<int> out;
  for (const RankInfo &rank : topology_of(peers).ranks) out.push_back(rank.host_index);
  return out;
}

}  // namespace

TEST_CASE("a host is where ranks can share memory, whatever it is called") {
  const char *first = "shm boot-1 net:[1] dicomm-a\ntcp 192.0.2.1 1";
  const char *same = "shm boot-1 net:[1] dicomm-b\ntcp 192.0.2.1 2";
  const char *other_namespace = "shm boot-1 net:[2] dicomm-c\ntcp 192.0.2.1 3";
  const char *other_boot = "shm boot-2 net:[1] dicomm-d\ntcp 192.0.2.2 1";
  const std::vector<PeerAddress> peers = {peer("h", other_namespace), peer("h", first), peer("h", other_boot),
                                          peer("container", same), peer("h", other_namespace)};
  CHECK(numbers(peers) == std::vector<int>{0, 1, 2, 1, 0});
  CHECK(topology_of(peers).ranks[3].host == "container");
  CHECK(topology_of(peers).hosts() == 3);
}

TEST_CASE("without shm the host's name counts") {
  const std::vector<PeerAddress> peers = {peer("a", "tcp 192.0.2.1 1"), peer("b", "tcp 192.0.2.2 1"),
                                          peer("a", "tcp 192.0.2.1 2"),
                                          peer("a", "shm boot net:[1] x\ntcp 192.0.2.1 3")};
  CHECK(numbers(peers) == std::vector<int>{0, 1, 0, 2});
}
