// Connections over several ports: which they use, and what happens when one is lost and returns.
#include <doctest/doctest.h>

#include "transport/verbs/rails.h"
#include "verbs_job.h"

using namespace dicomm;
using test::Job;
using test::log_lines;

namespace {

using Rails = std::vector<uint32_t>;

Rail rail(bool up, uint8_t network = 0, bool suspect = false) {
  return {up, suspect, doubles::ipv4_gid(10, 0, network, 1)};
}

// The other side's, with queue pairs over ports in these networks.
Setup setup_of(const std::vector<uint8_t> &networks, const Rails &pairs) {
  Setup setup;
  setup.ports = static_cast<uint32_t>(networks.size());
  for (size_t i = 0; i < networks.size(); ++i) setup.port[i].gid = doubles::ipv4_gid(10, 0, networks[i], 2);
  setup.queue_pairs = static_cast<uint32_t>(pairs.size());
  for (size_t i = 0; i < pairs.size(); ++i) setup.pair[i].port = pairs[i];
  return setup;
}

// Of the ports that a's connection uses, as stats tell: the double's devices, by the last number of a
// network.
std::string ports(Job &job) {
  const std::string told = job.to_b().peer_counters();
  std::string out;
  for (const char *name : {"double0", "double1", "double2"}) {
    if (told.find(name) != std::string::npos) out += name[6];
  }
  return out;
}

bool arrive_over(Job &job, const std::string &wanted) {
  return job.pair.drive([&] { return ports(job) == wanted; });
}

// Large messages each way, so many that every queue pair carries some.
void exchange(Job &job) {
  std::mt19937 random(5);
  job.traffic(30, random);
  REQUIRE(job.finish());
  job.check();
}

// In a log line, or not at all.
bool logged(const std::string &words) {
  return std::any_of(log_lines().begin(), log_lines().end(),
                     [&](const std::string &line) { return line.find(words) != std::string::npos; });
}

}  // namespace

TEST_CASE("rails: over all ports that are up, suspects last") {
  CHECK(choose_rails(std::vector{rail(true)}, 2) == Rails{0, 0, 0});
  CHECK(choose_rails(std::vector{rail(true), rail(true)}, 1) == Rails{0, 0, 1});
  CHECK(choose_rails(std::vector{rail(true), rail(false), rail(true)}, 2) == Rails{0, 0, 2, 0, 2});
  CHECK(choose_rails(std::vector{rail(true, 0, true), rail(true)}, 1) == Rails{1, 1, 0});
  CHECK(choose_rails(std::vector{rail(true, 0, true), rail(false)}, 1) == Rails{0, 0});
  CHECK(choose_rails(std::vector{rail(false)}, 1).empty());
}

TEST_CASE("rails: the port opposite") {
  const std::vector apart{rail(true, 1), rail(true, 2)};
  CHECK(opposite_rails(apart, setup_of({1, 2}, {0, 0, 1})) == Rails{0, 0, 1});
  CHECK(opposite_rails(apart, setup_of({2, 1}, {0, 0, 1})) == Rails{1, 1, 0});
  CHECK(opposite_rails(apart, setup_of({2}, {0, 0})) == Rails{1, 1});
  // One network for all: by index, and in turn where there is no such port or it is down.
  const std::vector flat{rail(true), rail(false), rail(true)};
  CHECK(opposite_rails(flat, setup_of({0, 0, 0}, {0, 0, 1, 2})) == Rails{0, 0, 0, 2});
  CHECK(opposite_rails(flat, setup_of({0, 0, 0, 0}, {3, 3})) == Rails{0, 2});
  // No network in common: perhaps there is a router.
  CHECK(opposite_rails(apart, setup_of({7}, {0, 0})) == Rails{0, 0});
  CHECK(opposite_rails(std::vector{rail(false)}, setup_of({0}, {0, 0})).empty());
}

TEST_CASE("transport rdma: a port that is lost is left, and used again when it returns") {
  for (const size_t lost : {0, 1}) {
    for (const bool tcp : {true, false}) {
      CAPTURE(lost);
      CAPTURE(tcp);
      Job job({.tcp = tcp, .queue_pairs = 2, .devices = 2});
      job.meet();
      REQUIRE(arrive_over(job, "01"));
      std::mt19937 random(4);
      job.traffic(20, random);
      job.verbs.control.set_port(lost, 1);
      job.traffic(20, random);
      REQUIRE(job.finish());
      REQUIRE(arrive_over(job, lost == 0 ? "1" : "0"));
      CHECK(counter(job.a(), "fallbacks") == 1);
      exchange(job);
      job.verbs.control.set_port(lost, 4);
      job.traffic(10, random);
      REQUIRE(arrive_over(job, "01"));
      exchange(job);
      CHECK(counter(job.a(), "fallbacks") == 1);
      CHECK(logged("queue pairs remade"));
    }
  }
}

TEST_CASE("transport rdma: a device that dies is left for the others") {
  for (const size_t lost : {0, 1, 2}) {
    CAPTURE(lost);
    Job job({.devices = 3});
    job.meet();
    REQUIRE(arrive_over(job, "012"));
    std::mt19937 random(6);
    job.traffic(20, random);
    job.verbs.control.kill_device(lost);
    job.traffic(20, random);
    REQUIRE(job.finish());
    REQUIRE(arrive_over(job, lost == 0 ? "12" : lost == 1 ? "02" : "01"));
    exchange(job);
  }
}

// Each time a link that works is given up in the middle of traffic, and messages change over and back.
TEST_CASE("transport rdma: a port that comes and goes loses, doubles and reorders nothing") {
  std::mt19937 random(11);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const int rounds = 3;
#else
  const int rounds = 12;
#endif
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    Job job({.chip = round % 2 != 0, .queue_pairs = 2, .depth = 8, .devices = 2});
    job.meet();
    job.verbs.control.settings.jitter = true;
    for (int change = 0; change < 8; ++change) {
      job.verbs.control.set_port(1, change % 2 == 0 ? 1 : 4);
      if (change % 2 != 0) job.verbs.control.set_port(0, 1);
      job.traffic(40, random);
      job.verbs.control.set_port(0, 4);
      job.traffic(10, random);
    }
    REQUIRE(job.finish());
    job.check();
    CHECK(counter(job.a(), "fallbacks") >= 2);
  }
}

TEST_CASE("transport rdma: a port whose network is silent is left") {
  for (const size_t silent : {0, 1}) {
    CAPTURE(silent);
    Job job({.devices = 2});
    job.meet();
    REQUIRE(arrive_over(job, "01"));
    std::mt19937 random(8);
    job.verbs.control.settings.devices[silent].port_state = 1;
    job.traffic(40, random);
    REQUIRE(job.finish());
    job.check();
    REQUIRE(arrive_over(job, silent == 0 ? "1" : "0"));
    CHECK(logged("RDMA connection timeout"));
    CHECK(logged("messages go over other queue pairs"));
    exchange(job);
  }
}

TEST_CASE("transport rdma: a port that never works is left out from the start") {
  for (const size_t silent : {0, 1}) {
    CAPTURE(silent);
    Job job({.devices = 2});
    job.verbs.control.settings.devices[silent].port_state = 1;  // unknown to the transports, which are open
    exchange(job);
    REQUIRE(arrive_over(job, silent == 0 ? "1" : "0"));
    CHECK(logged("RDMA connection not made"));
    exchange(job);
    CHECK(counter(job.a(), "fallbacks") == 0);
  }
}
