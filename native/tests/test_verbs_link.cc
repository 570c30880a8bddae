// How the queue pairs of two processes come and go: set-ups that fail late, paths that must wait for a port,
// ports in the order that is asked for, addresses that move, buffers that run out.
#include <doctest/doctest.h>

#include <thread>

#include "transport/verbs/gid.h"
#include "verbs_job.h"

using namespace dicomm;
using suite::Party;
using test::Job;
using test::log_lines;

namespace {

std::string path_of(Job &job) { return job.to_b().path(); }

std::vector<std::string> names(const Ports &ports) {
  std::vector<std::string> out;
  for (const auto &port : ports) out.push_back(port->describe().substr(0, 7));
  return out;
}

}  // namespace

// The side that asked has given up when the answer comes, and the other side had nothing to give up.
TEST_CASE("transport rdma: a set-up that is refused too late holds nothing up") {
  Job job({.connect_timeout = 300 * kMillisecond});
  Party &asks = job.a().self.id < job.b().self.id ? job.a() : job.b();
  Party &answers = &asks == &job.a() ? job.b() : job.a();
  asks.send(answers, Lane::control, 1);
  const auto &seen = job.verbs.control.seen;
  REQUIRE(suite::drive({&asks}, [&] {
    if (seen.qps == 0) answers.step();
    return seen.qps > 0;
  }));
  REQUIRE(suite::drive({&asks}, [&] { return seen.qps == 0; }));
  job.verbs.calls.results["create_qp"] = EIO;
  answers.send(asks, Lane::bulk, 300000);
  asks.send(answers, Lane::bulk, 300000);
  REQUIRE(job.finish());
  job.check();
  REQUIRE(job.pair.drive([&] { return path_of(job) == "rdma-direct"; }));
}

TEST_CASE("transport rdma: without tcp messages wait for a port that was lost") {
  Job job({.tcp = false});
  job.meet();
  job.verbs.control.set_port(0, 1);
  job.a().send(job.b(), Lane::bulk, 300000);
  job.b().send(job.a(), Lane::control, 100);
  CHECK_FALSE(
      job.pair.drive([&] { return !job.a().failed.empty() || job.b().complete() > 1; }, 200 * kMillisecond));
  job.verbs.control.set_port(0, 4);
  REQUIRE(job.finish());
  job.check();
  CHECK(path_of(job) == "rdma-direct");
}

TEST_CASE("transport rdma: without tcp and without a device there is nothing to wait for") {
  Job job({.tcp = false});
  job.meet();
  job.verbs.control.kill_device(0);
  job.a().send(job.b(), Lane::bulk, 300000);
  REQUIRE(job.pair.drive([&] { return !job.a().failed.empty() && !job.b().failed.empty(); }));
}

TEST_CASE("RDMA ports: in the order of the settings, but first where the process listens") {
  test::VerbsDouble verbs(6);
  auto &devices = verbs.control.settings.devices;
  std::swap(devices[0].gids[1].gid, devices[5].gids[1].gid);
  const ibv::Gid here = devices[5].gids[1].gid;
  VerbsSettings settings;
  settings.library = test::double_path("ibverbs");
  Ports ports;
  REQUIRE(VerbsPort::open(settings, here, ports).ok());
  CHECK(names(ports) == std::vector<std::string>{"double5", "double0", "double1", "double2"});
  ports.clear();
  settings.devices = {"double4", "double3:1", "double5", "double0:2"};
  REQUIRE(VerbsPort::open(settings, here, ports).ok());
  CHECK(names(ports) == std::vector<std::string>{"double5", "double4", "double3"});
  ports.clear();
  settings.gid_index = 7;
  CHECK(VerbsPort::open(settings, here, ports).message().find("no usable entry 7: ") != std::string::npos);
}

TEST_CASE("transport rdma: an interface that gets its address back in another place is found") {
  Job job;
  job.meet();
  job.verbs.control.set_port(0, 1);
  job.a().send(job.b(), Lane::control, 100);
  REQUIRE(job.finish());
  auto &gids = job.verbs.control.settings.devices[0].gids;
  gids.insert(gids.begin() + 1, doubles::VerbsGid{});
  job.verbs.control.set_port(0, 4);
  REQUIRE(job.pair.drive([&] { return path_of(job) == "rdma-direct"; }));
  CHECK(job.a().transport->counters().find("GID 2 ::ffff:127.0.0.1") != std::string::npos);
  job.a().send(job.b(), Lane::bulk, 300000);
  REQUIRE(job.finish());
  job.check();
}

TEST_CASE("RDMA staging: who found no buffer hears of the next that comes back") {
  test::VerbsDouble verbs;
  VerbsSettings settings;
  settings.library = test::double_path("ibverbs");
  Ports ports;
  REQUIRE(VerbsPort::open(settings, {}, ports).ok());
  StagingPool pool(ports, 2);
  int told = 0;
  pool.on_return([&] { ++told; });
  Pinned *first = nullptr, *second = nullptr, *third = nullptr;
  REQUIRE(pool.take(0, first).ok());
  REQUIRE(pool.take(0, second).ok());
  pool.give(second);
  CHECK(told == 0);
  REQUIRE(pool.take(0, second).ok());
  REQUIRE(pool.take(0, third).ok());
  CHECK(third == nullptr);
  pool.give(first);
  pool.give(second);
  CHECK(told == 1);
  pool.clear();
}
