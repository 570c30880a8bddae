// The record that ranks publish: what comes back, and what is refused.
#include <doctest/doctest.h>

#include <string>

#include "base/bytes.h"
#include "comm/chip.h"
#include "comm/hello.h"

using namespace dicomm;

namespace {

Hello example() {
  Hello hello;
  describe_host(hello.info);
  hello.info.host = "host-a";
  hello.info.numa = 1;
  hello.info.nics = {{"eth0", "ethernet", 100000, 0}, {"mlx5_0", "infiniband", 400000, -1}};
  hello.info.chip.vendor = "alpha";
  hello.info.chip.name = "Alpha 9";
  hello.info.chip.library = "alpha-ccl";
  hello.info.chip.library_version = 1;
  hello.info.chip.memory_bytes = uint64_t{80} << 30;
  hello.info.chip.dtypes = 1u << DICOMM_FLOAT32;
  hello.info.chip.index = 5;
  hello.info.chip.id = "A-1";
  hello.info.chip.island = "left";
  hello.info.chip.role = "reducer";
  hello.info.chip.simulated = true;
  hello.address.host = "host-a";
  hello.address.id[3] = std::byte{7};
  hello.address.key[5] = std::byte{9};
  hello.address.process = 4711;
  hello.address.address = "tcp 192.0.2.1 1";
  return hello;
}

Status read(std::span<const std::byte> record) {
  Hello out;
  return read_hello(3, record, out);
}

// The record of an example that was changed.
template <class Change>
Status read_changed(Change change) {
  Hello hello = example();
  change(hello);
  return read(write_hello(hello));
}

std::string text_of(const Status &status) { return status.ok() ? "" : status.failure()->text; }

}  // namespace

TEST_CASE("a hello says everything") {
  const Hello sent = example();
  Hello got;
  REQUIRE(read_hello(3, write_hello(sent), got).ok());
  CHECK(got.info == sent.info);
  CHECK(got.address.host == "host-a");
  CHECK(got.address.id == sent.address.id);
  CHECK(got.address.key == sent.address.key);
  CHECK(got.address.process == 4711);
  CHECK(got.address.address == sent.address.address);
  CHECK_FALSE(got.keyed);
}

TEST_CASE("a job with a secret publishes no key") {
  Hello sent = example(), got;
  sent.keyed = true;
  REQUIRE(read_hello(3, write_hello(sent), got).ok());
  CHECK(got.keyed);
  CHECK(got.address.key == Key{});
}

TEST_CASE("a hello that is cut, or longer, is refused") {
  std::vector<std::byte> record = write_hello(example());
  for (size_t size = 0; size < record.size(); ++size) {
    CAPTURE(size);
    REQUIRE(read(std::span(record).first(size)).code() == DICOMM_PROTOCOL);
  }
  record.push_back(std::byte{0});
  CHECK(text_of(read(record)) == "rank 3 published a record that is cut, too long or not dicomm's");
}

TEST_CASE("a hello with values that cannot be is refused") {
  CHECK(read_changed([](Hello &) {}).ok());
  const auto refused = [](auto change) { return read_changed(change).code() == DICOMM_PROTOCOL; };
  CHECK(refused([](Hello &h) { h.info.chip.role = "boss"; }));
  CHECK(refused([](Hello &h) { h.info.chip.index = -1; }));
  CHECK(refused([](Hello &h) { h.info.chip.vendor = ""; }));
  CHECK(refused([](Hello &h) { h.info.chip.dtypes = uint64_t{1} << 63; }));
  CHECK(refused([](Hello &h) { h.info.chip.island = std::string(300, 'x'); }));
  CHECK(refused([](Hello &h) { h.info.host = std::string(300, 'x'); }));
  CHECK(refused([](Hello &h) { h.address.address = std::string(5000, 'x'); }));
  CHECK(refused([](Hello &h) { h.info.nics.resize(65); }));
}

// A count or length from the wire never decides how much memory is taken.
TEST_CASE("any bytes are read or refused") {
  const std::vector<std::byte> record = write_hello(example());
  for (size_t at = 0; at < record.size(); ++at) {
    for (const int value : {0, 1, 0x7f, 0xff}) {
      std::vector<std::byte> changed = record;
      changed[at] = std::byte(value);
      const Status status = read(changed);
      CHECK((status.ok() || status.code() == DICOMM_PROTOCOL));
    }
  }
}

TEST_CASE("other releases are named with their host") {
  CHECK(text_of(read_changed([](Hello &h) {
          h.info.version = "9.9";
        })).starts_with("rank 3 (host-a) has dicomm 9.9 and this rank "));
  std::vector<std::byte> record = write_hello(example());
  record[0] = std::byte{7};
  CHECK(text_of(read(record)).starts_with("rank 3 (host-a) speaks protocol 7 (ABI 2)"));
  // Protocol 1 said no version and host there.
  ByteWriter old;
  old.put(uint32_t{1}).put(uint32_t{1}).put(ContextId{});
  CHECK(text_of(read(old.take())).starts_with("rank 3 speaks protocol 1 (ABI 1) and this rank protocol 2"));
}
