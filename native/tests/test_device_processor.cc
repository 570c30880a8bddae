// The host's processors as a chip, for islands with a library of their own.

#include "ccl/registry.h"
#include "device/processor/device.h"
#include "device/registry.h"
#include "device_suite.h"

namespace dicomm::test {

namespace {

std::unique_ptr<Device> make() { return std::make_unique<ProcessorDevice>(); }

DICOMM_DEVICE_SUITE("processor", make)

dicomm_chip chip(const char *vendor, const char *library) {
  return {.size = sizeof(dicomm_chip),
          .vendor = vendor,
          .index = 0,
          .island = "",
          .role = "worker",
          .simulation = nullptr,
          .library = library};
}

TEST_CASE("processors are a chip only where a library is asked for") {
  std::unique_ptr<Device> device;
  REQUIRE(open_device(chip("cpu", ""), device).ok());
  CHECK_FALSE(device);
  REQUIRE(open_device(chip("cpu", "mpi"), device).ok());
  REQUIRE(device);
  CHECK(std::string(device->vendor()) == "cpu");
  CHECK(device->close(kSecond).ok());
}

TEST_CASE("an island's library is one that there is, for chips that it serves") {
  std::unique_ptr<Ccl> ccl;
  const Status unknown = open_ccl(chip("cpu", "pvm"), "", ccl);
  CHECK(unknown.code() == DICOMM_INVALID_ARGUMENT);
  CHECK(unknown.message().find("'pvm', only mpi") != std::string::npos);
  const Status chips = open_ccl(chip("nvidia", "mpi"), "", ccl);
  CHECK(chips.code() == DICOMM_INVALID_ARGUMENT);
  CHECK(chips.message().find("'nvidia'") != std::string::npos);
  CHECK_FALSE(ccl);
}

}  // namespace

}  // namespace dicomm::test
