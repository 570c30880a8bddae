// Simulated chips: the contract, and what they model.

#include "device/registry.h"
#include "device/sim/device.h"
#include "device_suite.h"

namespace dicomm::test {

namespace {

std::unique_ptr<Device> make(SimProfile profile = {}) {
  if (profile.brand.empty()) profile.brand = "alpha";
  return std::make_unique<SimDevice>(std::move(profile), 0);
}

std::unique_ptr<Device> plain() { return make(); }
std::unique_ptr<Device> slow() {
  return make({.brand = "beta", .memory_bytes = 64 << 20, .copy_gbs = 5, .copy_latency_us = 20});
}

DICOMM_DEVICE_SUITE("sim", plain)
DICOMM_DEVICE_SUITE("sim with modelled copies", slow)

TEST_CASE("a simulated chip's memory ends where its profile says") {
  auto device = make({.brand = "alpha", .memory_bytes = 1000});
  std::unique_ptr<Allocation> first, second;
  REQUIRE(device->allocate(600, first).ok());
  const Status full = device->allocate(401, second);
  CHECK(full.code() == DICOMM_NO_MEMORY);
  CHECK(full.message().find("401 bytes wanted, 400 left") != std::string::npos);
  CHECK(device->allocate(400, second).ok());
  first.reset();
  CHECK(device->allocate(600, first).ok());
  first.reset();
  second.reset();
  CHECK(device->close(kSecond).ok());
}

TEST_CASE("a program's own memory counts as the simulated chip's") {
  auto device = make();
  int on_stack = 0;
  CHECK(device->owns(&on_stack));
  CHECK(device->close(kSecond).ok());
}

// Copies of one direction share an engine; the other direction has its own.
TEST_CASE("copies take the time of the profile") {
  auto device = make({.brand = "alpha", .copy_gbs = 1, .copy_latency_us = 5000});
  std::unique_ptr<Stream> first, second;
  std::unique_ptr<Allocation> chip, host;
  REQUIRE(device->make_stream(first).ok());
  REQUIRE(device->make_stream(second).ok());
  REQUIRE(device->allocate(20'000'000, chip).ok());
  REQUIRE(device->allocate_pinned(10'000'000, host).ok());
  const auto seconds = [&](auto enqueue) {
    const Nanos begun = now();
    enqueue();
    CHECK(suite::finish(*first).ok());
    CHECK(suite::finish(*second).ok());
    return static_cast<double>(now() - begun) / 1e9;
  };
  const double one = seconds([&] {
    CHECK(first->copy_to_device(chip->data(), host->data(), 10'000'000).ok());
    CHECK(first->copy_on_device(chip->data(), chip->data(), 1).ok());
  });
  CHECK(one >= 0.015);
  const double same_way = seconds([&] {
    CHECK(first->copy_to_device(chip->data(), host->data(), 10'000'000).ok());
    CHECK(second->copy_to_device(suite::at(chip, 10'000'000), host->data(), 10'000'000).ok());
  });
  CHECK(same_way >= 0.025);
  first.reset();
  second.reset();
  chip.reset();
  host.reset();
  CHECK(device->close(kSecond).ok());
}

TEST_CASE("a broken chip says so at every later call, and still tells those who wait") {
  auto device = make({.brand = "gamma", .breaks_at = 1});
  std::unique_ptr<Stream> stream;
  REQUIRE(device->make_stream(stream).ok());
  char a[16] = "fifteen letters", b[16] = "", c[16] = "";
  std::unique_ptr<Event> before, after;
  std::atomic<int> told{0};
  // A full queue, so that all of it is enqueued before the chip breaks.
  REQUIRE(stream->notify([](void *) { std::this_thread::sleep_for(std::chrono::milliseconds(50)); }, nullptr)
              .ok());
  REQUIRE(stream->copy_to_device(b, a, 16).ok());
  REQUIRE(stream->record(before).ok());
  REQUIRE(stream->copy_to_device(c, a, 16).ok());
  REQUIRE(stream->record(after).ok());
  REQUIRE(stream->notify([](void *arg) { ++*static_cast<std::atomic<int> *>(arg); }, &told).ok());
  CHECK(suite::finish(*before).ok());
  for (int i = 0; i < 2; ++i) {
    const Status failed = suite::finish(*after);
    CHECK(failed.code() == DICOMM_DEVICE_FAILED);
    CHECK(failed.message().find("gamma") != std::string::npos);
  }
  const Nanos deadline = deadline_after(5 * kSecond);
  while (told == 0 && now() < deadline) std::this_thread::yield();
  CHECK(told == 1);
  CHECK(std::string(b) == "fifteen letters");
  CHECK(std::string(c).empty());
  CHECK(stream->copy_to_host(b, a, 1).code() == DICOMM_DEVICE_FAILED);
  CHECK(stream->record(after).code() == DICOMM_DEVICE_FAILED);
  std::unique_ptr<Stream> other;
  CHECK(device->make_stream(other).code() == DICOMM_DEVICE_FAILED);
  std::unique_ptr<Allocation> memory;
  CHECK(device->allocate(1, memory).code() == DICOMM_DEVICE_FAILED);
  stream.reset();
  CHECK(device->close(kSecond).ok());
}

TEST_CASE("closing a simulated chip gives up on work that does not end") {
  auto device = make();
  std::unique_ptr<Stream> stream;
  REQUIRE(device->make_stream(stream).ok());
  static std::atomic<bool> go{false}, gone{false};
  REQUIRE(stream
              ->notify(
                  [](void *) {
                    while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                    gone = true;
                  },
                  nullptr)
              .ok());
  const Nanos begun = now();
  CHECK(device->close(50 * kMillisecond).code() == DICOMM_TIMED_OUT);
  CHECK(now() - begun < 5 * kSecond);
  stream.reset();
  device.reset();
  go = true;
  while (!gone) std::this_thread::yield();
}

TEST_CASE("chips are opened by what a rank says it computes on") {
  dicomm_simulation simulation{};
  simulation.size = sizeof simulation;
  simulation.memory_bytes = 5 << 20;
  simulation.copy_gbs = 3;
  simulation.lacks = "avg,send_recv";
  dicomm_chip chip{};
  chip.size = sizeof chip;
  chip.vendor = "delta";
  chip.index = 2;
  chip.simulation = &simulation;
  std::unique_ptr<Device> device;
  REQUIRE(open_device(chip, device).ok());
  CHECK(std::string(device->vendor()) == "delta");
  CHECK(device->index() == 2);
  CHECK(device->describe().find("5 MiB") != std::string::npos);
  CHECK(device->close(0).ok());

  SimProfile profile;
  REQUIRE(read_profile(chip, profile).ok());
  CHECK_FALSE(profile.avg);
  CHECK_FALSE(profile.send_recv);
  simulation.lacks = "avg,taste";
  CHECK(read_profile(chip, profile).message().find("'taste'") != std::string::npos);
  simulation.lacks = nullptr;
  simulation.copy_gbs = -1;
  CHECK(open_device(chip, device).code() == DICOMM_INVALID_ARGUMENT);

  chip.simulation = nullptr;
  const Status unknown = open_device(chip, device);
  CHECK(unknown.code() == DICOMM_INVALID_ARGUMENT);
  CHECK(
      unknown.message().find("'delta'; known: cpu, ascend, nvidia, amd, hygon, mthreads, iluvatar, metax") !=
      std::string::npos);
  chip.vendor = "cpu";
  CHECK(open_device(chip, device).ok());
  CHECK(device == nullptr);
}

}  // namespace

}  // namespace dicomm::test
