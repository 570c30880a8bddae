// Whose turn it is to make progress: callers, or the background thread when there are none.
#include <doctest/doctest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "progress/engine.h"

using namespace dicomm;

namespace {

// How often the background threads of this process have gone to sleep.
long times_asleep() {
  long sum = 0;
  for (const auto &task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name, line;
    std::ifstream(task.path() / "comm") >> name;
    if (name != "dicomm-progress") continue;
    std::ifstream status(task.path() / "status");
    const std::string key = "voluntary_ctxt_switches:";
    while (std::getline(status, line)) {
      if (line.rfind(key, 0) == 0) sum += std::stol(line.substr(key.size()));
    }
  }
  return sum;
}

void poll_for(Engine &engine, Nanos duration) {
  for (const Nanos end = now() + duration; now() < end;) engine.wait(nullptr, 0, 0);
}

}  // namespace

TEST_CASE("engine: the background thread sleeps while callers come and go") {
  Engine engine(0);
  REQUIRE(engine.start().ok());
  poll_for(engine, 20 * kMillisecond);
  // A caller that the machine does not let run is none: one quiet round of several is enough.
  long woken = kNever;
  for (int round = 0; round < 20 && woken > 10; ++round) {
    const long before = times_asleep();
    poll_for(engine, 100 * kMillisecond);
    woken = times_asleep() - before;
  }
  CHECK(woken <= 10);
  engine.stop();
}

TEST_CASE("engine: the background thread takes over when callers are gone") {
  Engine engine(0);
  REQUIRE(engine.start().ok());
  for (int round = 0; round < 20; ++round) {
    poll_for(engine, round % 4 * kMillisecond);
    std::atomic<bool> rung{false};
    {
      const Engine::Lock lock = engine.lock();
      engine.reactor().at(now() + kMillisecond, [&] { rung.store(true); });
      engine.settle();
    }
    const Nanos limit = now() + 10 * kSecond;
    while (!rung.load() && now() < limit) std::this_thread::sleep_for(std::chrono::microseconds(100));
    REQUIRE(rung.load());
  }
  engine.stop();
}

TEST_CASE("engine: a driver that sleeps for long is left alone, and replaced when it goes") {
  Engine engine(0);
  REQUIRE(engine.start().ok());
  std::atomic<bool> rung{false};
  {
    Engine::Lock lock = engine.lock();
    const Nanos until = now() + 300 * kMillisecond;
    bool asleep_before = false;
    long before = 0;
    engine.reactor().at(now() + 100 * kMillisecond, [&] {
      asleep_before = true;
      before = times_asleep();
    });
    CHECK_FALSE(engine.drive(lock, until, [] { return false; }));
    CHECK(asleep_before);
    CHECK(times_asleep() - before <= 2);
    engine.reactor().at(now() + kMillisecond, [&] { rung.store(true); });
  }
  const Nanos limit = now() + 10 * kSecond;
  while (!rung.load() && now() < limit) std::this_thread::sleep_for(std::chrono::microseconds(100));
  CHECK(rung.load());
  engine.stop();
}

namespace {

struct Bell final : FdHandler {
  bool rung = false;
  void on_ready(uint32_t) override { rung = true; }
};

// News that no descriptor tells of: whoever polls finds it.
struct News final : Poller {
  std::atomic<bool> there{false};
  bool found = false;
  bool poll() override {
    const bool now = there.exchange(false);
    found |= now;
    return now;
  }
  bool arm() override { return false; }
  void disarm() override {}
  bool meets_on(int) override { return false; }
};

}  // namespace

TEST_CASE("engine: a caller that only tests now and then sees what the kernel has") {
  Engine engine(0);
  REQUIRE(engine.start().ok());
  News news;
  Bell bell;
  const UniqueFd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  {
    const Engine::Lock lock = engine.lock();
    engine.reactor().add(&news);
    REQUIRE(engine.reactor().add(fd.get(), EPOLLIN, &bell).ok());
  }
  poll_for(engine, 20 * kMillisecond);  // the kernel is asked seldom by now
  const uint64_t one = 1;
  REQUIRE(::write(fd.get(), &one, sizeof one) == sizeof one);
  int tests = 0;
  for (bool rung = false; !rung && tests < 100; ++tests) {
    std::this_thread::sleep_for(std::chrono::microseconds(600));
    engine.wait(nullptr, 0, 0);
    const Engine::Lock lock = engine.lock();
    rung = bell.rung;
  }
  CHECK(tests <= 3);
  {
    const Engine::Lock lock = engine.lock();
    engine.reactor().remove(fd.get());
    engine.reactor().remove(&news);
  }
  engine.stop();
}

TEST_CASE("engine: who drives for something hears when another caller brings it about") {
  Engine engine(0);
  REQUIRE(engine.start().ok());
  News news;
  {
    const Engine::Lock lock = engine.lock();
    engine.reactor().add(&news);
  }
  std::atomic<bool> over{false};
  Nanos took = 0;
  std::thread drives([&] {
    Engine::Lock lock = engine.lock();
    const Nanos begun = now();
    engine.drive(lock, begun + 20 * kSecond, [&] { return news.found; });
    took = now() - begun;
    over = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it sleeps as driver
  news.there = true;
  for (const Nanos end = now() + 10 * kSecond; !over && now() < end;) engine.wait(nullptr, 0, 0);
  CHECK(over.load());
  drives.join();
  CHECK(took < 10 * kSecond);
  {
    const Engine::Lock lock = engine.lock();
    engine.reactor().remove(&news);
  }
  engine.stop();
}
