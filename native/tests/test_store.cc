// Every kind of store keeps the contract of store/store.h; a new kind joins with one line, see
// keeps_contract.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <thread>

#include "base/net.h"
#include "base/sha256.h"
#include "store/store.h"

using namespace dicomm;

namespace {

struct TempDirectory {
  std::string path = "/tmp/dicomm-store-XXXXXX";
  TempDirectory() { REQUIRE(::mkdtemp(path.data()) != nullptr); }
  ~TempDirectory() { std::filesystem::remove_all(path); }
};

std::vector<std::byte> bytes(std::string_view text) {
  const auto *p = reinterpret_cast<const std::byte *>(text.data());
  return {p, p + text.size()};
}

StoreOptions options(std::string_view secret = "secret", Nanos timeout = 10 * kSecond) {
  return {bytes(secret), timeout};
}

std::unique_ptr<Store> open(const std::string &url, const StoreOptions &with = options()) {
  std::unique_ptr<Store> store;
  const Status status = open_store(url, with, store);
  INFO(status.message());
  REQUIRE(status.ok());
  return store;
}

void keeps_contract(const std::function<std::string(const TempDirectory &)> &url) {
  const TempDirectory directory;
  const auto first = open(url(directory));
  const auto second = open(first->url());
  std::vector<std::byte> value;

  SUBCASE("what one sets the other gets, and may be replaced") {
    for (const size_t size : {size_t{0}, size_t{1}, size_t{5000}, size_t{16} << 20}) {
      std::vector<std::byte> sent(size, std::byte{static_cast<unsigned char>(size + 7)});
      REQUIRE(first->set("a/key with spaces: \xc3\xa4", sent).ok());
      REQUIRE(second->get("a/key with spaces: \xc3\xa4", value, deadline_after(10 * kSecond)).ok());
      REQUIRE(value == sent);
    }
  }
  SUBCASE("get waits for the key") {
    std::thread setter([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      static_cast<void>(second->set("late", bytes("x")));
    });
    const Status status = first->get("late", value, deadline_after(10 * kSecond));
    setter.join();
    REQUIRE(status.ok());
    CHECK(value == bytes("x"));
  }
  SUBCASE("get ends at its deadline, and the store stays usable") {
    const Nanos start = now();
    const Status status = first->get("never", value, deadline_after(100 * kMillisecond));
    const Nanos waited = now() - start;
    CHECK(status.code() == DICOMM_TIMED_OUT);
    CHECK(status.message().find("'never'") != std::string::npos);
    CHECK(waited >= 100 * kMillisecond);
    CHECK(waited < 2 * kSecond);
    for (int i = 0; i < 20; ++i) CHECK(first->get("never", value, now()).code() == DICOMM_TIMED_OUT);
    REQUIRE(second->set("never", bytes("after all")).ok());
    REQUIRE(first->get("never", value, deadline_after(kSecond)).ok());
    CHECK(value == bytes("after all"));
  }
  SUBCASE("check does not wait") {
    bool exists = true;
    REQUIRE(first->check("k", exists).ok());
    CHECK_FALSE(exists);
    REQUIRE(second->set("k", {}).ok());
    REQUIRE(first->check("k", exists).ok());
    CHECK(exists);
  }
  SUBCASE("add is atomic") {
    std::vector<std::thread> threads;
    std::atomic<int> failures = 0;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, url = first->url()] {
        std::unique_ptr<Store> store;
        int64_t sum = 0;
        if (!open_store(url, options(), store).ok()) ++failures;
        for (int i = 0; i < 25 && store; ++i)
          if (!store->add("counter", 3, sum).ok()) ++failures;
      });
    }
    for (std::thread &thread : threads) thread.join();
    CHECK(failures == 0);
    int64_t sum = 0;
    REQUIRE(first->add("counter", -1, sum).ok());
    CHECK(sum == 4 * 25 * 3 - 1);
    REQUIRE(first->get("counter", value, now() + kSecond).ok());
    CHECK(value == bytes("299"));
    REQUIRE(first->set("word", bytes("seven")).ok());
    CHECK(first->add("word", 1, sum).code() == DICOMM_INVALID_ARGUMENT);
  }
  SUBCASE("keys and values are bounded") {
    CHECK(first->set("", {}).code() == DICOMM_INVALID_ARGUMENT);
    CHECK(first->set(std::string(513, 'k'), {}).code() == DICOMM_INVALID_ARGUMENT);
    CHECK(first->set("k", std::vector<std::byte>((16 << 20) + 1)).code() == DICOMM_INVALID_ARGUMENT);
    const std::string a(512, '/'), b = std::string(511, '/') + '.';
    REQUIRE(first->set(a, bytes("a")).ok());
    REQUIRE(first->set(b, bytes("b")).ok());
    REQUIRE(second->get(a, value, now() + kSecond).ok());
    CHECK(value == bytes("a"));
  }
}

}  // namespace

TEST_CASE("store: tcp" * doctest::timeout(60)) {
  keeps_contract([](const TempDirectory &) { return "tcp-server://127.0.0.1:0"; });
}
TEST_CASE("store: tcp over IPv6" * doctest::timeout(60)) {
  keeps_contract([](const TempDirectory &) { return "tcp-server://[::1]:0"; });
}
TEST_CASE("store: tcp by host name" * doctest::timeout(60)) {
  keeps_contract([](const TempDirectory &) { return "tcp-server://localhost:0"; });
}
TEST_CASE("store: file" * doctest::timeout(60)) {
  keeps_contract([](const TempDirectory &directory) { return "file://" + directory.path + "/job"; });
}

TEST_CASE("store: urls" * doctest::timeout(60)) {
  std::unique_ptr<Store> store;
  for (const char *url : {"", "http://x:1", "tcp://", "tcp://host", "tcp://host:", "tcp://host:0", "tcp://:1",
                          "tcp://host:99999", "tcp://::1:80", "file://relative", "tcp-server://nohost"}) {
    CAPTURE(url);
    CHECK(open_store(url, options(), store).code() == DICOMM_INVALID_ARGUMENT);
  }
  CHECK(open("tcp-server://127.0.0.1:0")->url().starts_with("tcp://127.0.0.1:"));
  CHECK(open("tcp-server://[::1]:0")->url().starts_with("tcp://[::1]:"));
}

TEST_CASE("store: the server may come later, but not too late" * doctest::timeout(60)) {
  std::string url;
  {
    const auto gone = open("tcp-server://127.0.0.1:0");
    url = gone->url();
  }
  std::unique_ptr<Store> store;
  const Nanos start = now();
  const Status status = open_store(url, options("secret", 200 * kMillisecond), store);
  CHECK(status.code() == DICOMM_CONNECT_FAILED);
  CHECK(status.failure()->foreign_code == ECONNREFUSED);
  CHECK(status.message().find(url.substr(6)) != std::string::npos);
  CHECK(now() - start >= 200 * kMillisecond);
  CHECK(now() - start < 2 * kSecond);

  std::unique_ptr<Store> server;
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    static_cast<void>(open_store("tcp-server://" + url.substr(6), options(), server));
  });
  const Status connected = open_store(url, options(), store);
  later.join();
  INFO(connected.message());
  CHECK(connected.ok());
  // Restarted on the same port at once, clients connected: they find it again, empty.
  server.reset();
  CHECK(store->set("k", {}).code() == DICOMM_PEER_LOST);
  server = open("tcp-server://" + url.substr(6));
  CHECK(store->set("k", {}).ok());
}

TEST_CASE("store: a wrong secret is told at once" * doctest::timeout(60)) {
  const auto server = open("tcp-server://127.0.0.1:0");
  std::unique_ptr<Store> store;
  const Nanos start = now();
  const Status status = open_store(server->url(), options("another"), store);
  CHECK(status.code() == DICOMM_CONNECT_FAILED);
  CHECK(status.message().find("secret") != std::string::npos);
  CHECK(now() - start < 2 * kSecond);
}

TEST_CASE("store: strangers change nothing" * doctest::timeout(60)) {
  const auto server = open("tcp-server://127.0.0.1:0");
  std::string host;
  uint16_t port = 0;
  REQUIRE(split_host_port(server->url().substr(6), host, port).ok());
  SocketAddress address;
  REQUIRE(parse_numeric(host, port, address).ok());
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 200; ++i) {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(fd.get(), address.get(), address.length) == 0);
    std::vector<std::byte> garbage(i % 3 == 0 ? 0 : 300 * static_cast<size_t>(i));
    random_bytes(garbage);
    if (!garbage.empty()) ::send(fd.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    strangers.push_back(std::move(fd));
  }
  // Silent ones hold places; a member still gets in, and members inside notice nothing.
  const auto member = open(server->url());
  REQUIRE(member->set("k", bytes("v")).ok());
  std::vector<std::byte> value;
  REQUIRE(server->get("k", value, now() + kSecond).ok());
  CHECK(value == bytes("v"));
  // Who sent garbage has been hung up on.
  pollfd p{strangers[1].get(), POLLIN, 0};
  CHECK(::poll(&p, 1, 5000) == 1);
}

TEST_CASE("store: the server's thread survives running out of descriptors" * doctest::timeout(60)) {
  const auto server = open("tcp-server://127.0.0.1:0");
  const auto member = open(server->url());
  std::string host;
  uint16_t port = 0;
  REQUIRE(split_host_port(server->url().substr(6), host, port).ok());
  SocketAddress address;
  REQUIRE(parse_numeric(host, port, address).ok());
  {
    std::vector<UniqueFd> all;
    UniqueFd waiting(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    const rlimit tight{static_cast<rlim_t>(waiting.get() + 8), before.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &tight);
    for (int fd = 0; fd >= 0;) {
      fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
      all.emplace_back(fd);
    }
    CHECK(::connect(waiting.get(), address.get(), address.length) == 0);
    timespec cpu_before{}, cpu_after{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu_before);
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu_after);
    ::setrlimit(RLIMIT_NOFILE, &before);
    const double used = static_cast<double>(cpu_after.tv_sec - cpu_before.tv_sec) +
                        static_cast<double>(cpu_after.tv_nsec - cpu_before.tv_nsec) / 1e9;
    CHECK(used < 0.2);
    CHECK(member->set("still", bytes("here")).ok());
  }
  CHECK(open(server->url())->set("and", bytes("new ones")).ok());
}

TEST_CASE("store: a wrapped store" * doctest::timeout(60)) {
  const auto inner = open("tcp-server://127.0.0.1:0");
  dicomm_store_vtable vtable{};
  vtable.size = sizeof(vtable);
  vtable.set = [](void *self, const char *key, const uint8_t *value, size_t n) -> int32_t {
    return static_cast<Store *>(self)->set(key, std::as_bytes(std::span(value, n))).code();
  };
  vtable.get = [](void *self, const char *key, uint8_t *value, size_t cap, size_t *n,
                  int64_t timeout) -> int32_t {
    std::vector<std::byte> found;
    const Status status = static_cast<Store *>(self)->get(key, found, deadline_after(timeout));
    *n = found.size();
    std::copy_n(reinterpret_cast<const uint8_t *>(found.data()), std::min(cap, found.size()), value);
    return status.code();
  };
  vtable.check = [](void *self, const char *key, int32_t *exists) -> int32_t {
    bool found = false;
    const Status status = static_cast<Store *>(self)->check(key, found);
    *exists = found;
    return status.code();
  };
  const auto store = wrap_store(vtable, inner.get());
  std::vector<std::byte> value;
  const std::vector<std::byte> large(100000, std::byte{9});
  REQUIRE(store->set("large", large).ok());
  REQUIRE(store->get("large", value, deadline_after(kSecond)).ok());
  CHECK(value == large);
  CHECK(store->get("none", value, deadline_after(50 * kMillisecond)).code() == DICOMM_TIMED_OUT);
  bool exists = false;
  REQUIRE(store->check("large", exists).ok());
  CHECK(exists);
  int64_t sum = 0;
  CHECK(store->add("n", 1, sum).code() == DICOMM_NOT_SUPPORTED);
  CHECK(store->url().empty());
}
