// The cache of registered memory over the double of libibverbs: what is registered, kept and dropped, by the
// calls that arrive there.
#include "transport/verbs/region_cache.h"

#include <doctest/doctest.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>

#include "hidden_chip.h"
#include "mappings.h"
#include "verbs_double.h"

using namespace dicomm;
using namespace dicomm::test;

namespace {

constexpr int kWrite = ibv::access_local_write | ibv::access_remote_write;

struct World {
  explicit World(size_t most = 8, size_t most_pages = 64, bool start = true) {
    verbs.control.settings.devices.resize(2);
    VerbsSettings settings;
    settings.library = double_path("ibverbs");
    const Status opened = VerbsPort::open(settings, doubles::ipv4_gid(127, 0, 0, 1), ports);
    REQUIRE_MESSAGE(opened.ok(), opened.message());
    cache = std::make_unique<RegionCache>(ports, most, most_pages * kPage);
    if (start) cache->start();
    forget();
  }
  // False: the machine does not let us watch memory, which another test says.
  bool keeps() const { return cache->why_not().empty(); }

  Status open(Region &region, const char *data, size_t bytes, int access = kWrite, size_t port = 0) {
    return cache->open(port, reinterpret_cast<const std::byte *>(data), bytes, access, region);
  }
  // A message that comes and goes. True: it needed a registration.
  bool message(const char *data, size_t bytes, int access = kWrite, size_t port = 0) {
    Region region;
    const uint64_t before = cache->counters().misses;
    const Status status = open(region, data, bytes, access, port);
    REQUIRE_MESSAGE(status.ok(), status.message());
    CHECK(address(region->addr) <= address(data));
    CHECK(address(region->addr) + region->length >= address(data) + bytes);
    CHECK(region->pd == ports[port]->pd());
    return cache->counters().misses > before;
  }
  // What arrived since the last forget(): "reg_mr(8192 access=3)\n" ...
  std::string log() { return verbs.calls.log; }
  void forget() { verbs.calls.log.clear(); }
  int registered() const { return verbs.control.seen.mrs; }

  VerbsDouble verbs;
  std::vector<std::unique_ptr<VerbsPort>> ports;
  std::unique_ptr<RegionCache> cache;
};

std::string registration(size_t pages, int access = kWrite) {
  return concat("reg_mr(", pages * kPage, " access=", access, ")\n");
}

}  // namespace

TEST_CASE("region cache: what was registered serves the next message, both ways, whole pages of it") {
  World world;
  if (!world.keeps()) return;
  const Mapping memory(4);
  CHECK(world.message(memory.page(1) + 10, kPage, 0));
  CHECK(world.log() == registration(2));
  CHECK_FALSE(world.message(memory.page(1) + 10, kPage, kWrite));
  CHECK_FALSE(world.message(memory.page(1), 2 * kPage, kWrite));
  CHECK_FALSE(world.message(memory.page(2), 1, 0));
  CHECK(world.log() == registration(2));
  // What reaches beyond it, or goes through another port, is registered apart.
  CHECK(world.message(memory.page(2), kPage + 1));
  CHECK(world.message(memory.data, kPage + 1));
  CHECK(world.message(memory.page(1), kPage, 0, 1));
  CHECK_FALSE(world.message(memory.page(3), 1));
  CHECK(world.registered() == 4);
  CHECK(world.cache->kept() == 4);
  CHECK(world.cache->counters().hits == 4);
  CHECK(world.cache->counters().misses == 4);
  CHECK(world.cache->counters().invalidations == 0);
}

TEST_CASE("region cache: a long registration is found behind shorter ones that begin later") {
  World world;
  if (!world.keeps()) return;
  const Mapping memory(8);
  CHECK(world.message(memory.page(4), kPage));
  CHECK(world.message(memory.page(5), kPage));
  CHECK(world.message(memory.data, 8 * kPage));
  CHECK_FALSE(world.message(memory.page(5), 2 * kPage));
  CHECK_FALSE(world.message(memory.page(7), kPage));
}

TEST_CASE("region cache: the longest unused goes first, and what is in use stays") {
  World world(3, 4);
  if (!world.keeps()) return;
  const Mapping memory(8);
  const auto page = [&](size_t i) { return world.message(memory.page(i), kPage); };
  CHECK((page(0) && page(1) && page(2)));
  CHECK_FALSE(page(0));
  CHECK(page(3));  // for page 1
  CHECK_FALSE(page(0));
  CHECK_FALSE(page(2));
  CHECK(page(1));  // for page 3
  CHECK(world.registered() == 3);
  CHECK(world.message(memory.page(4), 3 * kPage));  // three and one pages are the most
  CHECK(world.registered() == 2);
  CHECK_FALSE(page(1));
  CHECK(world.message(memory.data, 5 * kPage));  // more than may be kept
  CHECK(world.message(memory.data, 5 * kPage));
  Region used[3];
  for (size_t i = 0; i < 3; ++i) REQUIRE(world.open(used[i], memory.page(i), kPage).ok());
  CHECK(world.cache->kept() == 3);
  CHECK(page(6));
  CHECK(page(6));
  CHECK(world.registered() == 3);
  used[1].reset();
  CHECK(page(6));
  CHECK_FALSE(page(6));
  CHECK_FALSE(page(0));
}

TEST_CASE("region cache: memory that is mapped anew is registered anew") {
  World world;
  if (!world.keeps()) return;
  const Mapping memory(4);
  REQUIRE(world.message(memory.data, 2 * kPage));
  REQUIRE_FALSE(world.message(memory.data, 2 * kPage));
  map_pages(1, memory.page(1));
  CHECK(world.message(memory.data, 2 * kPage));
  REQUIRE(::munmap(memory.data, 4 * kPage) == 0);
  map_pages(4, memory.data);
  CHECK(world.message(memory.data, 2 * kPage));
  REQUIRE(::madvise(memory.data, kPage, MADV_DONTNEED) == 0);
  CHECK(world.message(memory.data, 2 * kPage));
  CHECK_FALSE(world.message(memory.data, 2 * kPage));
  CHECK(world.cache->counters().invalidations == 3);
  CHECK(world.registered() == 1);
}

TEST_CASE("region cache: what is gone while in use goes with its last user") {
  World world;
  if (!world.keeps()) return;
  const Mapping memory(2);
  Region first, second, third;
  REQUIRE(world.open(first, memory.data, kPage).ok());
  REQUIRE(world.open(second, memory.data, kPage).ok());
  const uint32_t key = first->rkey;
  CHECK(second->rkey == key);
  map_pages(2, memory.data);
  world.cache->sweep();
  CHECK(world.registered() == 1);
  CHECK(world.cache->kept() == 0);
  REQUIRE(world.open(third, memory.data, kPage).ok());
  CHECK(third->rkey != key);
  first.reset();
  CHECK(world.registered() == 2);
  CHECK(second->rkey == key);
  second.reset();
  CHECK(world.registered() == 1);
  third.reset();
  CHECK_FALSE(world.message(memory.data, kPage));
}

TEST_CASE("region cache: what is unmapped is let go without another message") {
  World world;
  if (!world.keeps()) return;
  const Mapping memory(2);
  REQUIRE(world.message(memory.data, kPage));
  REQUIRE(::munmap(memory.data, kPage) == 0);
  // Not at once: munmap returns as soon as its event was read, which is before the news.
  pollfd news{world.cache->news(), POLLIN, 0};
  CHECK(::poll(&news, 1, 5000) == 1);
  world.cache->sweep();
  CHECK(world.registered() == 0);
}

TEST_CASE("region cache: memory that cannot be watched is registered as it is, for one message") {
  World world;
  const int file = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  auto *const mapped =
      static_cast<char *>(::mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0));
  ::close(file);
  REQUIRE(mapped != MAP_FAILED);
  for (int i = 0; i < 2; ++i) {
    CHECK(world.message(mapped + 8, 100, 0));
    CHECK(world.registered() == 0);
  }
  const std::string once = "reg_mr(100 access=0)\ndereg_mr(100)\n";
  CHECK(world.log() == once + once);
  ::munmap(mapped, 2 * kPage);
}

TEST_CASE("region cache: a chip's memory is kept for as long as the same allocation is there") {
  World world(8, 64, false);
  HiddenDevice chip(true);
  ChipReach reach;
  reach.find_out(world.ports, chip);
  REQUIRE(reach.way() == ChipReach::Way::dma_buf);
  std::unique_ptr<Allocation> memory, next;
  REQUIRE(chip.allocate(4 * kPage, memory).ok());
  REQUIRE(chip.allocate(kPage, next).ok());
  const auto *const data = static_cast<const std::byte *>(memory->data());
  const auto registered = [&](size_t offset, size_t bytes) {
    Region region;
    const uint64_t before = world.cache->counters().misses;
    REQUIRE(world.cache->open(0, data + offset, bytes, kWrite, region, &reach).ok());
    return world.cache->counters().misses > before;
  };
  CHECK(registered(0, 4 * kPage));
  CHECK_FALSE(registered(0, 4 * kPage));
  CHECK_FALSE(registered(kPage, 100));
  CHECK(world.cache->kept() == 1);
  chip.replace(data);
  CHECK(registered(kPage, 100));
  CHECK(world.cache->counters().invalidations == 1);
  CHECK(world.registered() == 1);
  CHECK(registered(0, 5 * kPage));  // of two allocations: for one message
  CHECK(world.registered() == 1);
  CHECK(world.cache->kept() == 1);
}

TEST_CASE("region cache: nothing is kept before it is started") {
  World world(8, 64, false);
  CHECK(world.cache->why_not() == "not started");
  CHECK(world.cache->news() == -1);
  const Mapping memory(1);
  CHECK(world.message(memory.data, 100, 0));
  CHECK(world.message(memory.data, 100, 0));
  CHECK(world.registered() == 0);
}

TEST_CASE("region cache: memory that may only be read is registered for reading") {
  World world;
  if (!world.keeps()) return;
  const Mapping memory(1);
  world.verbs.calls.results["reg_mr"] = EFAULT;
  CHECK(world.message(memory.data, kPage, 0));
  CHECK(world.log() == registration(1) + registration(1, 0));
  CHECK_FALSE(world.message(memory.data, kPage, 0));
  CHECK(world.message(memory.data, kPage, kWrite));
  Region region;
  const Mapping other(1);
  world.verbs.calls.results["reg_mr"] = EFAULT;
  CHECK(world.open(region, other.data, kPage, kWrite).failure()->foreign_code == EFAULT);
  CHECK_FALSE(region.valid());
  CHECK(world.cache->kept() == 2);
}

TEST_CASE("region cache: what is idle makes room where too much memory is locked") {
  World world;
  if (!world.keeps()) return;
  const Mapping memory(8);
  world.verbs.control.settings.devices[0].max_registered = 4 * kPage;
  Region used;
  REQUIRE(world.open(used, memory.data, kPage).ok());
  REQUIRE(world.message(memory.page(1), kPage));
  REQUIRE(world.message(memory.page(2), 2 * kPage));
  CHECK(world.registered() == 3);
  CHECK(world.message(memory.page(4), 2 * kPage));
  CHECK(world.registered() == 2);
  // For others, too: frames of a connection.
  ibv::Mr *frames = nullptr;
  REQUIRE(world.ports[0]->register_memory(memory.page(6), 2 * kPage, kWrite, frames).ok());
  CHECK(world.cache->kept() == 1);
  Region more;
  const Status status = world.open(more, memory.page(4), 2 * kPage);
  CHECK(status.failure()->foreign_code == ENOMEM);
  CHECK_FALSE(more.valid());
  CHECK(world.cache->kept() == 1);
  CHECK(used->length == kPage);
  world.ports[0]->deregister(frames);
  CHECK(world.message(memory.page(4), 2 * kPage));
}

TEST_CASE("region cache: a forked child has nothing of it") {
  World world;
  if (!world.keeps()) return;
  const Mapping memory(2);
  REQUIRE(world.message(memory.data, kPage));
  Region used;
  REQUIRE(world.open(used, memory.page(1), kPage).ok());
  const pid_t child = ::fork();
  if (child == 0) {
    memory.data[0] = 1;
    ::munmap(memory.data, kPage);
    world.forget();
    for (const auto &port : world.ports) port->after_fork();
    world.cache->after_fork();
    used.reset();
    world.cache.reset();
    ::_exit(world.log().empty() ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK_FALSE(world.message(memory.data, kPage));
  CHECK(used->length == kPage);
  CHECK(world.cache->counters().invalidations == 0);
}
