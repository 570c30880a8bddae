// The rdma transport over the double of libibverbs: the conformance suite on every path, and what happens
// when queue pairs fail under way.
#include <doctest/doctest.h>

#include <filesystem>

#include "base/mapping_watch.h"
#include "mappings.h"
#include "transport/verbs/gid.h"
#include "verbs_job.h"

using namespace dicomm;
using suite::Party;
using test::Job;
using test::Knobs;
using test::log_lines;
using test::over_double;
using test::rank_names;
using test::rdma;

namespace {

suite::Setup over_cards(Knobs knobs) {
  knobs.real = true;
  std::error_code none;
  const bool any = std::filesystem::directory_iterator("/sys/class/infiniband", none) !=
                   std::filesystem::directory_iterator();
  return {rdma(knobs), false, false, any ? "" : "no RDMA device (see tests/rdma_vm)"};
}

}  // namespace

DICOMM_TRANSPORT_SUITE("rdma-direct", over_double({.staged = false, .tcp = false}))
DICOMM_TRANSPORT_SUITE("rdma-staged", over_double({.direct = false, .tcp = false}))
DICOMM_TRANSPORT_SUITE("rdma, four queue pairs, eight frames", over_double({.queue_pairs = 4, .depth = 8}))
DICOMM_TRANSPORT_SUITE("rdma, chips", over_double({.chip = true}))
DICOMM_TRANSPORT_SUITE("real rdma-direct", over_cards({.staged = false, .tcp = false}))
DICOMM_TRANSPORT_SUITE("real rdma-staged", over_cards({.direct = false, .tcp = false, .queue_pairs = 3}))

TEST_CASE("transport rdma: a link that is cut anywhere loses, doubles and reorders nothing") {
  std::mt19937 random(2026);
  uint64_t fallbacks = 0, again = 0;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const int rounds = 16;  // each takes half a second there
#else
  const int rounds = 120;
#endif
  for (int round = 0; round < rounds; ++round) {
    const bool tcp = round % 3 != 2, direct = round % 4 != 3, chip = round % 2 != 0;
    CAPTURE(round);
    const auto queue_pairs = static_cast<uint32_t>(1 + random() % 3),
               depth = static_cast<uint32_t>(8 + random() % 25);
    Job job({.direct = direct,
             .tcp = tcp,
             .chip = chip,
             .queue_pairs = queue_pairs,
             .depth = depth,
             .devices = 1 + random() % 3});
    job.meet();
    auto &settings = job.verbs.control.settings;
    settings.seed = static_cast<uint32_t>(random());
    settings.jitter = true;
    settings.cut_after = static_cast<int64_t>(random() % 60);
    const auto how = random() % 3;
    settings.cut_how = how == 0   ? doubles::VerbsSettings::lost
                       : how == 1 ? doubles::VerbsSettings::partly
                                  : doubles::VerbsSettings::delivered;
    job.traffic(40, random);
    REQUIRE(job.finish());
    job.traffic(10, random);
    REQUIRE(job.finish());
    job.check();
    fallbacks += counter(job.a(), "fallbacks");
    again += counter(job.a(), "links") == 2;
  }
  CHECK(fallbacks >= static_cast<uint64_t>(rounds / 2));
  CHECK(again >= static_cast<uint64_t>(rounds / 3));
}

TEST_CASE("transport rdma: what fails is named, and the messages go on") {
  Job job;
  rank_names() = {{job.a().self.id, "rank 3 alpha@host1"}, {job.b().self.id, "rank 7 beta@host2"}};
  const std::string to_b = " (rank 3 alpha@host1 -> rank 7 beta@host2), ",
                    to_a = " (rank 7 beta@host2 -> rank 3 alpha@host1), ";
  job.meet();
  std::mt19937 random(3);
  for (const std::string what : {"a queue pair", "the port", "the device"}) {
    CAPTURE(what);
    const uint64_t before = counter(job.a(), "fallbacks");
    log_lines().clear();
    job.traffic(5, random);
    if (what[2] == 'q') job.verbs.control.settings.cut_after = 0;
    if (what[4] == 'p') job.verbs.control.set_port(0, 1);
    if (what[4] == 'd') job.verbs.control.kill_device(0);
    job.traffic(20, random);
    REQUIRE(job.finish());
    job.check();
    CHECK(counter(job.a(), "fallbacks") == before + 1);
    REQUIRE(log_lines().size() >= 2);  // one for each side
    const std::string begins = concat("RDMA connection ", what[2] == 'q' ? "timeout" : "lost",
                                      log_lines()[0].find(to_b) < 40 ? to_b : to_a,
                                      "messages go over tcp until it is made again, with ");
    CHECK(log_lines()[0].substr(0, begins.size()) == begins);
    if (what[4] == 'd') break;
    job.verbs.control.set_port(0, 4);
    REQUIRE(job.pair.drive([&] { return std::string(job.to_b().path()) == "rdma-direct"; }));
  }
  CHECK(std::string(job.to_b().path()) == "tcp");
}

TEST_CASE("transport rdma: memory that cannot be registered is staged") {
  Job job;
  job.meet();
  std::mt19937 random(4);
  job.verbs.control.settings.devices[0].refuse_mr = [](const void *, size_t bytes) {
    return bytes < kVerbsMaxPayload ? ENOMEM : 0;
  };
  job.a().send(job.b(), Lane::bulk, 300000);
  job.b().send(job.a(), Lane::bulk, 400000);
  REQUIRE(job.finish());
  job.check();
  CHECK(counter(job.a(), "staged_bytes") == 300000);
  CHECK(std::string(job.to_b().path()) == "rdma-staged");
  CHECK(log_lines()[0].find("ulimit -l") != std::string::npos);
}

TEST_CASE("transport rdma: cards read and write the memory of chips") {
  Job job({.chip = true});
  job.meet();
  REQUIRE(job.to_b().carries(*job.a().chip));
  uint64_t bytes = 0;
  for (const size_t size : {1, 5000, 10000, 300000, 1048576}) {
    job.a().send(job.b(), Lane::bulk, size);
    bytes += size;
  }
  REQUIRE(job.finish());
  job.check();
  CHECK(counter(job.a(), "chip_bytes") == bytes);
  CHECK(counter(job.a(), "direct_bytes") == bytes);
  CHECK(job.a().transport->counters().find("\"chip_memory\": \"dma-buf\"") != std::string::npos);
}

TEST_CASE("transport rdma: one side's chip cannot be reached, and the other's can") {
  Job job;
  job.meet();
  job.a().chip = std::make_unique<test::HiddenChip>(job.a().reactor, true);
  job.a().transport->meet(*job.a().chip);
  job.b().chip = std::make_unique<test::HiddenChip>(job.b().reactor, false);
  job.verbs.control.settings.devices[0].refuse_mr = [](const void *, size_t bytes) {
    return bytes == 65536 ? EFAULT : 0;  // what a kernel says that knows no peer memory
  };
  job.b().transport->meet(*job.b().chip);
  CHECK(job.to_b().carries(*job.a().chip));
  CHECK_FALSE(job.to_a().carries(*job.b().chip));
  const std::string text = job.b().transport->counters();
  CHECK(text.find("no: by dma-buf: not on this chip; by peer memory: ibv_reg_mr") != std::string::npos);
  std::mt19937 random(6);
  job.traffic(40, random);
  REQUIRE(job.finish());
  job.check();
  CHECK(counter(job.a(), "chip_bytes") > 0);
  CHECK(counter(job.b(), "chip_bytes") == 0);
}

TEST_CASE("transport rdma: what the chip still copies arrives though the sender is gone") {
  Job job;
  job.meet();
  job.b().chip = std::make_unique<test::HiddenChip>(job.b().reactor, true);
  job.b().transport->meet(*job.b().chip);
  job.b().chip->hold = true;
  for (const size_t size : {100, 5000})
    job.a().send(job.b(), Lane::bulk, size);  // in frames, and then a bounce
  REQUIRE(job.pair.drive([&] { return job.a().all_sent() && job.b().arrived.size() == 3; }));
  for (int i = 0; i < 100; ++i) {
    job.a().transport->shutdown();
    job.a().step();
    job.b().step();
  }
  job.a().transport.reset();  // it has waited long enough
  for (int i = 0; i < 100; ++i) job.b().step();
  CHECK(job.b().complete() == 1);
  CHECK(job.b().failed.empty());
  job.b().chip->hold = false;
  REQUIRE(suite::drive({&job.b()}, [&] { return !job.b().failed.empty(); }));
  CHECK(job.b().failed[0].clean);
  check_delivery(job.a(), job.b(), false);
}

TEST_CASE("transport rdma: a chip's memory that cannot be registered after all goes through the host's") {
  Job job({.chip = true});
  job.meet();
  REQUIRE(job.to_b().carries(*job.a().chip));
  job.verbs.control.settings.devices[0].dmabuf = false;
  std::mt19937 random(7);
  job.traffic(40, random);
  REQUIRE(job.finish());
  job.check();
  CHECK(counter(job.a(), "chip_bytes") == 0);
  CHECK_FALSE(job.to_b().carries(*job.a().chip));
  CHECK(std::string(job.to_b().path()) == "rdma-direct");
  REQUIRE(log_lines().size() == 2);  // one for each side
  CHECK(log_lines()[0].find("goes through the host's from here on: ibv_reg_dmabuf_mr") != std::string::npos);
}

TEST_CASE("transport rdma: a chip's memory that cards may not touch after all goes through the host's") {
  Job job({.chip = true});
  job.meet();
  job.verbs.control.settings.devices[0].dmabuf_access = false;
  std::mt19937 random(8);
  job.traffic(40, random);
  REQUIRE(job.finish());
  REQUIRE(job.pair.drive([&] { return std::string(job.to_b().path()) == "rdma-direct"; }));
  CHECK_FALSE(job.to_b().carries(*job.a().chip));
  CHECK_FALSE(job.to_a().carries(*job.b().chip));
  const uint64_t losses = counter(job.a(), "fallbacks"), tried = counter(job.a(), "chip_bytes");
  CHECK(losses <= 2);  // one for each side's chip
  job.traffic(40, random);
  REQUIRE(job.finish());
  job.check();
  CHECK(counter(job.a(), "fallbacks") == losses);
  CHECK(counter(job.a(), "chip_bytes") == tried);
  const std::string said = "goes through the host's from here on: ";
  const auto saying = [&](const std::string &line) { return line.find(said) != std::string::npos; };
  CHECK(std::count_if(log_lines().begin(), log_lines().end(), saying) == 2);
}

TEST_CASE("transport rdma: without queue pairs messages go over tcp, where that is allowed") {
  for (const bool tcp : {true, false}) {
    CAPTURE(tcp);
    Job job({.tcp = tcp});
    job.verbs.control.settings.devices[0].max_qp_wr = 4;
    job.a().send(job.b(), Lane::bulk, 100000);
    job.a().send(job.b(), Lane::control, 10);
    if (tcp) {
      REQUIRE(job.finish());
      job.check();
      CHECK(counter(job.a(), "socket_bytes") == 100000);
      CHECK(log_lines()[0].find("RDMA connection not made (host") == 0);
      CHECK(log_lines()[0].find(" -> process ") != std::string::npos);
      CHECK(log_lines()[0].find("ibv_create_qp") != std::string::npos);
      continue;
    }
    REQUIRE(job.pair.drive([&] { return !job.a().failed.empty() && !job.b().failed.empty(); }));
    for (Party *party : job.pair.both()) {
      const Status &why = party->failed[0].why;
      CHECK((why.code() == DICOMM_CONNECT_FAILED || why.code() == DICOMM_PEER_LOST));
    }
    const bool named = job.a().failed[0].why.code() == DICOMM_CONNECT_FAILED;
    CHECK((named ? job.a() : job.b()).failed[0].why.message().find("no other path is allowed") !=
          std::string::npos);
  }
}

TEST_CASE("transport rdma: a send buffer that is mapped anew at its address is registered anew") {
  Job job;
  job.meet();
  if (MappingWatch probe(1); !probe.open().ok()) return;  // memory cannot be watched here
  const test::Mapping memory(64);
  const size_t size = 60 * test::kPage;
  const auto send = [&](uint64_t hits, uint64_t misses, uint64_t invalidations) {
    suite::Message &message = job.a().sent.emplace_back();
    message.tag = {job.a().next_number++, static_cast<uint64_t>(Lane::bulk)};
    const std::vector<std::byte> content = suite::pattern(message.tag.number, size);
    std::memcpy(memory.page(2), content.data(), size);
    message.out.header.fill(std::byte{0x5a});
    std::memcpy(message.out.header.data(), &message.tag, sizeof(message.tag));
    message.out.data = reinterpret_cast<const std::byte *>(memory.page(2));
    message.out.size = size;
    message.out.lane = Lane::bulk;
    REQUIRE(job.to_b().send(message.out) == Sent::queued);
    REQUIRE(job.finish());
    CHECK(counter(job.a(), "region_hits") == hits);
    CHECK(counter(job.a(), "region_misses") == misses);
    CHECK(counter(job.a(), "region_invalidations") == invalidations);
    CHECK(counter(job.a(), "regions_kept") == 1);
  };
  send(0, 1, 0);
  send(1, 1, 0);
  test::map_pages(62, memory.page(2));
  send(1, 2, 1);
  REQUIRE(::munmap(memory.data, 64 * test::kPage) == 0);
  REQUIRE(job.pair.drive([&] { return counter(job.a(), "regions_kept") == 0; }));
  test::map_pages(64, memory.data);
  send(1, 3, 2);
  send(2, 3, 2);
  job.check();
}

TEST_CASE("transport rdma: queue pairs belong to the partition that is asked for") {
  for (const bool there : {true, false}) {
    CAPTURE(there);
    Job job({.pkey_index = 1});
    if (there) job.verbs.control.settings.devices[0].pkeys.push_back(0x8001);
    job.a().send(job.b(), Lane::control, 10);
    job.b().send(job.a(), Lane::control, 10);
    REQUIRE(job.finish());
    job.check();
    CHECK(counter(job.a(), "links") == (there ? 1 : 0));
    if (!there) CHECK(log_lines()[0].find("ibv_modify_qp to INIT") != std::string::npos);
  }
}

TEST_CASE("transport rdma: a receive that is taken back is not written to any more") {
  for (const bool hold : {false, true}) {
    CAPTURE(hold);
    Job job;
    job.meet();
    const size_t size = 500000;
    job.a().send(job.b(), Lane::bulk, size);
    REQUIRE(job.pair.drive([&] { return job.b().arrived.size() == 2; }));
    job.b().step();  // granted
    suite::Arrival &arrival = job.b().arrived.back();
    REQUIRE_FALSE(arrival.complete);
    job.verbs.control.settings.hold = hold;
    job.to_a().revoke(arrival);
    CHECK(arrival.data == nullptr);
    std::fill(arrival.payload.begin(), arrival.payload.end(), std::byte{0x77});
    if (hold) job.verbs.control.release();
    REQUIRE(job.pair.drive([&] { return arrival.complete && job.a().all_sent(); }));
    CHECK(arrival.payload == std::vector<std::byte>(size, std::byte{0x77}));
    job.a().send(job.b(), Lane::bulk, size);
    REQUIRE(job.pair.drive([&] { return job.b().complete() == 3; }));
    CHECK(job.b().arrived.back().payload == suite::pattern(3, size));
    CHECK(job.a().failed.empty());
  }
}

TEST_CASE("transport rdma: a sleeping receiver is woken through the completion channel") {
  Job job;
  job.meet();
  for (int i = 0; i < 20; ++i) job.b().step();
  for (int i = 0; i < 10; ++i) {
    job.a().send(job.b(), Lane::control, 20);
    const Nanos start = now();
    for (int k = 0; k < 50 && job.b().complete() < static_cast<size_t>(i) + 2; ++k)
      job.b().step(now() + kSecond);
    CHECK(job.b().complete() == static_cast<size_t>(i) + 2);
    CHECK(now() - start < kSecond);
  }
}

TEST_CASE("GID choice") {
  const auto entry = [](uint32_t index, uint32_t type, ibv::Gid gid) {
    return ibv::GidEntry{gid, index, 1, type, 1};
  };
  const ibv::Gid global6 = {{0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
  const ibv::Gid local = doubles::link_local_gid(), one = doubles::ipv4_gid(192, 0, 2, 1),
                 two = doubles::ipv4_gid(198, 51, 100, 1);
  const int v1 = ibv::gid_type_roce_v1, v2 = ibv::gid_type_roce_v2;
  const std::vector<ibv::GidEntry> table = {entry(0, v1, local),  entry(1, v2, local), entry(2, v1, one),
                                            entry(3, v2, one),    entry(4, v1, two),   entry(5, v2, two),
                                            entry(6, v2, global6)};
  CHECK(choose_gid(table, false, two) == 5);
  CHECK(choose_gid(table, false, global6) == 6);
  CHECK(choose_gid(table, false, {}) == 3);
  CHECK(choose_gid(table, false, local) == 1);
  CHECK(choose_gid({table[0], table[1], table[6]}, false, two) == 6);
  CHECK(choose_gid({table[0], table[1]}, false, two) == 1);
  CHECK(choose_gid({table[0], table[2]}, false, two) == 0);
  CHECK(choose_gid({entry(0, ibv::gid_type_ib, global6), entry(1, ibv::gid_type_ib, one)}, true, one) == 0);
  CHECK(choose_gid({entry(0, v2, {})}, false, one) == -1);
  CHECK(choose_gid({}, true, one) == -1);
}

TEST_CASE("RDMA settings") {
  VerbsSettings settings;
  REQUIRE(
      parse_verbs_settings(" devices=mlx5_0:1+mlx5_1 ,timeout=20,gid_index=3, queue_pairs=4", settings).ok());
  CHECK(settings.devices == std::vector<std::string>{"mlx5_0:1", "mlx5_1"});
  CHECK(settings.timeout == 20);
  CHECK(settings.gid_index == 3);
  CHECK(settings.queue_pairs == 4);
  REQUIRE(parse_verbs_settings("", settings).ok());
  for (const char *bad : {"timeout", "timeout=", "timeout=32", "timeout=1x", "speed=3", "queue_depth=4"}) {
    CAPTURE(bad);
    CHECK(parse_verbs_settings(bad, settings).code() == DICOMM_INVALID_ARGUMENT);
  }
}
