// Hosts and islands as they follow from what ranks publish, and what is refused.
#include <doctest/doctest.h>

#include <string>

#include "coll/groups.h"
#include "comm/bootstrap.h"
#include "comm/chip.h"

using namespace dicomm;

namespace {

PeerAddress peer(const char *host, const char *address) {
  PeerAddress out;
  out.host = host;
  out.address = address;
  return out;
}

std::vector<RankInfo> records(const std::vector<PeerAddress> &peers) {
  std::vector<RankInfo> out(peers.size());
  for (size_t r = 0; r < peers.size(); ++r) out[r].host = peers[r].host;
  return out;
}

std::vector<int> host_numbers(const std::vector<PeerAddress> &peers) {
  Topology topology;
  REQUIRE(topology_of(peers, records(peers), topology).ok());
  std::vector<int> out;
  for (const RankInfo &rank : topology.ranks) out.push_back(rank.host_index);
  return out;
}

ChipInfo chip(const std::string &vendor, const std::string &library = "", uint32_t version = 0) {
  ChipInfo made;
  made.vendor = vendor;
  made.library = library;
  made.library_version = version;
  return made;
}

// Rank r has chips[r], all on one host, "localhost".
Topology of_chips(const std::vector<ChipInfo> &chips) {
  Topology topology = flat_topology(static_cast<int>(chips.size()));
  for (size_t r = 0; r < chips.size(); ++r) topology.ranks[r].chip = chips[r];
  return topology;
}

std::vector<int> island_numbers(const std::vector<ChipInfo> &chips) {
  Topology topology = of_chips(chips);
  REQUIRE(form_islands(topology).ok());
  std::vector<int> out;
  for (const RankInfo &rank : topology.ranks) out.push_back(rank.island_index);
  return out;
}

std::string refusal(const std::vector<ChipInfo> &chips) {
  Topology topology = of_chips(chips);
  const Status status = form_islands(topology);
  CHECK(status.code() == DICOMM_INVALID_ARGUMENT);
  return status.ok() ? "" : status.failure()->text;
}

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

ChipInfo forced(ChipInfo made, const char *island) {
  made.island = island;
  return made;
}

const ChipInfo kAlpha = chip("alpha", "alpha-ccl", 1), kBeta = chip("beta", "beta-ccl", 1),
               kGamma = chip("gamma", "gamma-ccl", 1), kCpu = chip("cpu");

}  // namespace

TEST_CASE("a host is where ranks can share memory, whatever it is called") {
  const char *first = "shm boot-1 net:[1] dicomm-a\ntcp 192.0.2.1 1";
  const char *same = "shm boot-1 net:[1] dicomm-b\ntcp 192.0.2.1 2";
  const char *other_namespace = "shm boot-1 net:[2] dicomm-c\ntcp 192.0.2.1 3";
  const char *other_boot = "shm boot-2 net:[1] dicomm-d\ntcp 192.0.2.2 1";
  const std::vector<PeerAddress> peers = {peer("h", other_namespace), peer("h", first), peer("h", other_boot),
                                          peer("container", same), peer("h", other_namespace)};
  CHECK(host_numbers(peers) == std::vector<int>{0, 1, 2, 1, 0});
  Topology topology;
  REQUIRE(topology_of(peers, records(peers), topology).ok());
  CHECK(topology.ranks[3].host == "container");
  CHECK(topology.hosts() == 3);
}

TEST_CASE("without shm the host's name counts") {
  const std::vector<PeerAddress> peers = {peer("a", "tcp 192.0.2.1 1"), peer("b", "tcp 192.0.2.2 1"),
                                          peer("a", "tcp 192.0.2.1 2"),
                                          peer("a", "shm boot net:[1] x\ntcp 192.0.2.1 3")};
  CHECK(host_numbers(peers) == std::vector<int>{0, 1, 0, 2});
}

TEST_CASE("islands follow from vendor and library, not from rank order") {
  CHECK(island_numbers({kCpu, kCpu, kCpu}) == std::vector<int>{0, 0, 0});
  CHECK(island_numbers({kBeta, kBeta, kAlpha, kAlpha}) == std::vector<int>{0, 0, 1, 1});
  CHECK(island_numbers({kAlpha, kBeta, kAlpha, kBeta}) == std::vector<int>{0, 1, 0, 1});
  CHECK(island_numbers({kAlpha, kBeta, kBeta, kBeta, kBeta}) == std::vector<int>{0, 1, 1, 1, 1});
  CHECK(island_numbers({kGamma, kAlpha, kBeta, kAlpha, kCpu, kGamma}) == std::vector<int>{0, 1, 2, 1, 3, 0});
  ChipInfo real = kAlpha, pretended = kAlpha;
  pretended.simulated = true;
  CHECK(island_numbers({real, pretended, real}) == std::vector<int>{0, 1, 0});
}

TEST_CASE("library versions go together as their vendors promise") {
  const auto nccl = [](uint32_t version) { return chip("nvidia", "nccl", version); };
  CHECK(island_numbers({nccl(22703), nccl(22800), nccl(22705), nccl(22800)}) == std::vector<int>{0, 1, 0, 1});
  // Whose promises are not known: only the very same.
  CHECK(island_numbers({chip("x", "xccl", 22703), chip("x", "xccl", 22705)}) == std::vector<int>{0, 1});
  CHECK(island_numbers({nccl(22703), chip("nvidia")}) == std::vector<int>{0, 1});
  CHECK(release_of(nccl(22703)) == "2.27.3");
  CHECK(release_of(kAlpha) == "1");
  CHECK(release_of(kCpu) == "");
}

TEST_CASE("words of the user's part what belongs together") {
  CHECK(island_numbers({forced(kAlpha, "left"), forced(kAlpha, "right"), kAlpha, forced(kAlpha, "left"),
                        kBeta}) == std::vector<int>{0, 1, 2, 0, 3});
  CHECK(island_numbers({forced(kAlpha, "a"), forced(kBeta, "b"), forced(kAlpha, "a")}) ==
        std::vector<int>{0, 1, 0});
}

TEST_CASE("reducers are apart from workers, whose library does without them") {
  ChipInfo alpha = kAlpha, cpu = kCpu;
  alpha.role = cpu.role = "reducer";
  CHECK(island_numbers({kAlpha, alpha, kAlpha, alpha}) == std::vector<int>{0, 1, 0, 1});
  CHECK(island_numbers({cpu, kCpu, kAlpha, cpu}) == std::vector<int>{0, 1, 2, 0});
  CHECK(island_numbers({forced(kAlpha, "x"), forced(alpha, "x"), forced(alpha, "y")}) ==
        std::vector<int>{0, 1, 2});
}

TEST_CASE("a word cannot join what no library serves") {
  const std::string mixed = refusal({forced(kAlpha, "x"), kAlpha, forced(kBeta, "x"), forced(kAlpha, "x")});
  CHECK(contains(mixed,
                 "island 'x' would hold alpha with alpha-ccl 1 on ranks 0 (localhost), 3 (localhost), "
                 "beta with beta-ccl 1 on rank 2 (localhost)"));
  CHECK(contains(mixed, "DICOMM_ISLAND"));
  const std::string versions =
      refusal({forced(chip("nvidia", "nccl", 22703), "x"), forced(chip("nvidia", "nccl", 22800), "x")});
  CHECK(
      contains(versions, "nvidia with nccl 2.27.3 on rank 0 (localhost), nvidia with nccl 2.28.0 on rank 1"));
  // Many ranks are counted, not listed.
  std::vector<ChipInfo> many(20, forced(kAlpha, "x"));
  many.push_back(forced(kBeta, "x"));
  CHECK(contains(refusal(many), "7 (localhost) and 12 more, beta"));
}

TEST_CASE("a chip is used once in an island, and by any number of islands") {
  ChipInfo gpu = chip("nvidia", "nccl", 22703), other = gpu;
  gpu.id = "GPU-1";
  other.id = "GPU-2";
  CHECK(island_numbers({gpu, other}) == std::vector<int>{0, 0});
  const std::string twice = refusal({gpu, other, gpu});
  CHECK(contains(twice, "ranks 0 (localhost), 2 (localhost) use one chip, nvidia GPU-1, which nccl refuses"));
  CHECK(island_numbers({forced(gpu, "a"), forced(gpu, "b"), other}) == std::vector<int>{0, 1, 2});
  // Whether ranks share a chip whose id no one knows cannot be told.
  CHECK(island_numbers({kAlpha, kAlpha}) == std::vector<int>{0, 0});
}

TEST_CASE("of a part, hosts and islands are numbered anew") {
  Topology whole = topology_of_hosts({0, 1, 2, 2});
  const ChipInfo chips[] = {kAlpha, kBeta, kGamma, kBeta};
  for (size_t r = 0; r < 4; ++r) whole.ranks[r].chip = chips[r];
  REQUIRE(form_islands(whole).ok());
  CHECK(whole.islands() == 3);
  const Topology part = part_of(whole, {3, 1, 2});
  REQUIRE(part.size() == 3);
  CHECK(part.hosts() == 2);
  CHECK(part.islands() == 2);
  const auto is = [&](int rank, const char *host, int host_index, int island_index) {
    const RankInfo &info = part.ranks[static_cast<size_t>(rank)];
    CHECK(info.host == host);
    CHECK(info.host_index == host_index);
    CHECK(info.island_index == island_index);
  };
  is(0, "host2", 0, 0);
  is(1, "host1", 1, 0);
  is(2, "host2", 0, 1);
}

TEST_CASE("the algorithms on two levels may take islands for groups") {
  const std::vector<std::vector<ChipInfo>> jobs = {
      {kAlpha, kBeta},
      {kAlpha, kBeta, kAlpha, kBeta},
      {kAlpha, kBeta, kBeta, kBeta},
      {kGamma, kAlpha, kBeta, kAlpha, kAlpha},
      {kAlpha, kAlpha, forced(kAlpha, "apart"), kBeta, kCpu, kGamma, kBeta}};
  for (const auto &chips : jobs) {
    Topology topology = of_chips(chips);
    REQUIRE(form_islands(topology).ok());
    const coll::Groups groups = coll::islands_of(topology);
    CHECK(groups.size() == topology.islands());
    for (int r = 0; r < topology.size(); ++r) {
      CHECK(groups.of(r) == topology.ranks[static_cast<size_t>(r)].island_index);
    }
  }
}

TEST_CASE("what a context says of its chip") {
  OpenedChip opened;
  const ChipInfo &made = opened.info;
  ChipOptions options;
  REQUIRE(open_chip(options, "127.0.0.1", opened).ok());
  CHECK(made.vendor == "cpu");
  CHECK(made.library == "");
  CHECK(made.dtypes == all_dtypes());
  CHECK(made.memory_bytes > 1 << 20);
  CHECK(made.role == "worker");

  options.vendor = "alpha";
  options.index = 3;
  options.role = "reducer";
  options.island = "x";
  options.simulated = true;
  options.simulation.memory_bytes = 1 << 30;
  options.simulation.dtypes = 1u << DICOMM_FLOAT32;
  REQUIRE(open_chip(options, "127.0.0.1", opened).ok());
  CHECK(made.library == "alpha-ccl");
  CHECK(made.library_version == 1);
  CHECK(made.memory_bytes == 1 << 30);
  CHECK(dtype_names(made.dtypes, " ") == "float32");
  CHECK(made.index == 3);
  CHECK(made.role == "reducer");
  CHECK(made.island == "x");
  CHECK(made.simulated);
  CHECK(made.converts);
  CHECK(opened.device->close(kSecond).ok());

  const auto refused = [&](auto change) {
    ChipOptions wrong = options;
    change(wrong);
    return open_chip(wrong, "127.0.0.1", opened).code() == DICOMM_INVALID_ARGUMENT;
  };
  CHECK(refused([](ChipOptions &o) { o.role = "helper"; }));
  CHECK(refused([](ChipOptions &o) { o.index = -1; }));
  CHECK(refused([](ChipOptions &o) { o.island = std::string(201, 'x'); }));
}

TEST_CASE("a context refuses a chip that cannot be") {
  dicomm_chip chip{};
  chip.size = sizeof chip;
  dicomm_context_options options{};
  options.size = sizeof options;
  options.interface = "127.0.0.1";
  options.chip = &chip;
  dicomm_context *context = nullptr;
  chip.role = "helper";
  CHECK(dicomm_context_create(&options, &context) == DICOMM_INVALID_ARGUMENT);
  chip.role = nullptr;
  dicomm_simulation simulation{};
  simulation.size = sizeof simulation;
  chip.simulation = &simulation;
  CHECK(dicomm_context_create(&options, &context) == DICOMM_INVALID_ARGUMENT);  // of which brand?
  CHECK(context == nullptr);
}
