// Run times with CUDA's interface, on doubles: the contract, and how they are called.

#include <unistd.h>

#include "device/cuda/device.h"
#include "device/cuda/runtime.h"
#include "device_suite.h"
#include "doubles/double.h"

namespace dicomm::test {

namespace {

CudaMember member(const char *vendor, const char *name) {
  const CudaMember *found = find_cuda_member(vendor);
  REQUIRE(found != nullptr);
  CudaMember made = *found;
  made.files = {double_path(name)};
  made.driver = made.driver.empty() ? "" : double_path("cuda_driver");
  return made;
}

std::unique_ptr<Device> open(const CudaMember &row, int index = 0) {
  std::unique_ptr<Device> device;
  DICOMM_SUITE_OK(CudaDevice::open(row, index, device));
  return device;
}

std::unique_ptr<Device> cuda() { return open(member("nvidia", "cuda"), 1); }
std::unique_ptr<Device> hip() { return open(member("amd", "hip")); }
std::unique_ptr<Device> maca() { return open(member("metax", "maca")); }

DICOMM_DEVICE_SUITE("cuda double", cuda)
DICOMM_DEVICE_SUITE("hip double", hip)
DICOMM_DEVICE_SUITE("maca double", maca)

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

// What a call of body adds to the double's log.
template <class Body>
std::string calls(const char *name, Body body) {
  auto *control = double_control(name);
  const size_t before = control->log.size();
  body();
  return control->log.substr(before);
}

// Without a chip the vendor's own run time must say so through us; with one it is held to the contract.
TEST_CASE("CUDA's own run time, where this machine has it") {
  const CudaMember &row = *find_cuda_member("nvidia");
  std::unique_ptr<Device> device;
  const Status status = CudaDevice::open(row, 0, device);
  if (status.ok()) {
    MESSAGE(device->describe());
    CHECK(device->close(kSecond).ok());
    device.reset();
    const auto real = [&] { return open(row, 0); };
#define DICOMM_RUN(scenario, make) suite::scenario(make);
    DICOMM_DEVICE_SCENARIOS(DICOMM_RUN, real)
#undef DICOMM_RUN
    return;
  }
  MESSAGE("no chip to run on: " << status.message());
  CHECK(status.code() == DICOMM_NOT_SUPPORTED);
  if (contains(status.message(), "cannot open")) return;  // nor a run time
  CHECK(status.failure()->foreign_domain == "cuda");
  CHECK((status.failure()->foreign_code == kCudaNoDevice ||
         status.failure()->foreign_code == kCudaInsufficientDriver));
  CHECK(contains(status.message(), "cudaGetDeviceCount: "));
}

TEST_CASE("a missing run time is NOT_SUPPORTED and says what was tried and how to get it") {
  for (const std::string &vendor : cuda_vendors()) {
    CudaMember row = *find_cuda_member(vendor);
    row.files = {"libabsent_one.so.1", "libabsent_two.so"};
    std::unique_ptr<Device> device;
    const Status status = CudaDevice::open(row, 0, device);
    CHECK(status.code() == DICOMM_NOT_SUPPORTED);
    for (const auto &part :
         {std::string("libabsent_one.so.1"), std::string("libabsent_two.so"), row.how, vendor})
      CHECK(contains(status.message(), part));
  }
}

TEST_CASE("a run time that lacks a function is named with it") {
  CudaMember row = member("metax", "cuda");
  std::unique_ptr<Device> device;
  const Status status = CudaDevice::open(row, 0, device);
  CHECK(status.code() == DICOMM_NOT_SUPPORTED);
  CHECK(contains(status.message(), "has no function mcGetDeviceCount"));
}

TEST_CASE("codes of a run time are mapped, kept and forgotten") {
  auto device = cuda();
  auto *control = double_control("cuda");
  std::unique_ptr<Allocation> memory;
  const struct {
    int code;
    dicomm_status status;
  } table[] = {{2, DICOMM_NO_MEMORY},       {1, DICOMM_INVALID_ARGUMENT}, {101, DICOMM_INVALID_ARGUMENT},
               {801, DICOMM_NOT_SUPPORTED}, {100, DICOMM_NOT_SUPPORTED},  {35, DICOMM_NOT_SUPPORTED},
               {700, DICOMM_DEVICE_FAILED}, {999, DICOMM_DEVICE_FAILED}};
  for (const auto &row : table) {
    control->results["Malloc"] = row.code;
    const Status status = device->allocate(100, memory);
    CHECK(status.code() == row.status);
    REQUIRE(status.failure() != nullptr);
    CHECK(status.failure()->foreign_domain == "cuda");
    CHECK(status.failure()->foreign_code == row.code);
    CHECK(contains(status.message(),
                   row.code == 2 ? "out of memory, ErrorMemoryAllocation" : "something else"));
    CHECK(memory == nullptr);
    auto *last = reinterpret_cast<int (*)()>(
        ::dlsym(::dlopen(double_path("cuda").c_str(), RTLD_NOW | RTLD_LOCAL), "cudaGetLastError"));
    CHECK(last() == 0);
  }
  CHECK(device->close(kSecond).ok());
}

TEST_CASE("opening says which chips there are") {
  std::unique_ptr<Device> device;
  const Status beyond = CudaDevice::open(member("nvidia", "cuda"), 2, device);
  CHECK(beyond.code() == DICOMM_INVALID_ARGUMENT);
  CHECK(contains(beyond.message(), "this process sees 2"));
  double_control("cuda")->results["GetDeviceCount"] = 100;
  const Status none = CudaDevice::open(member("nvidia", "cuda"), 0, device);
  CHECK(none.code() == DICOMM_NOT_SUPPORTED);
  CHECK(none.failure()->foreign_code == 100);
  device = cuda();
  CHECK(device->index() == 1);
  CHECK(std::string(device->vendor()) == "nvidia");
  const std::string text = device->describe();
  for (const char *part : {"nvidia 1", "double 1", "PCI 0000:02:00.0", "8192 MiB", "version 12040"})
    CHECK_MESSAGE(contains(text, part), text);
  CHECK(device->close(kSecond).ok());
}

TEST_CASE("calls are made on the chip, and the caller's current one is put back") {
  auto device = cuda();
  std::unique_ptr<Stream> stream, standard;
  std::unique_ptr<Allocation> memory, pinned;
  CHECK(contains(calls("cuda", [&] { CHECK(device->make_stream(stream).ok()); }),
                 "SetDevice(1)\nStreamCreateWithFlags(1 on 1)\nSetDevice(0)\n"));
  CHECK(contains(calls("cuda", [&] { CHECK(device->allocate(100, memory).ok()); }),
                 "Malloc(100 on 1)\nSetDevice(0)"));
  CHECK(contains(calls("cuda", [&] { CHECK(device->allocate_pinned(100, pinned).ok()); }),
                 "HostAlloc(100 flags 1 on 1)\nSetDevice(0)"));
  std::unique_ptr<Event> event;
  CHECK(contains(calls("cuda", [&] { CHECK(stream->record(event).ok()); }), "EventCreateWithFlags(2 on 1)"));
  // A stream of our own knows its chip.
  CHECK_FALSE(
      contains(calls("cuda", [&] { CHECK(stream->copy_to_host(pinned->data(), memory->data(), 100).ok()); }),
               "SetDevice"));
  CHECK(device->wrap(nullptr, standard).ok());
  CHECK(contains(
      calls("cuda", [&] { CHECK(standard->copy_to_host(pinned->data(), memory->data(), 100).ok()); }),
      "MemcpyAsync(100 kind 2 stream (nil) on 1)\nSetDevice(0)"));
  CHECK(contains(
      calls("cuda", [&] { CHECK(standard->copy_to_device(memory->data(), pinned->data(), 7).ok()); }),
      "MemcpyAsync(7 kind 1 stream (nil) on 1)"));
  CHECK(contains(
      calls("cuda", [&] { CHECK(standard->copy_on_device(memory->data(), memory->data(), 7).ok()); }),
      "MemcpyAsync(7 kind 3 stream (nil) on 1)"));
  CHECK(contains(calls("cuda",
                       [&] {
                         const Status status = device->with_current([&] {
                           std::unique_ptr<Allocation> inside;
                           return device->allocate(5, inside);
                         });
                         CHECK(status.ok());
                       }),
                 "SetDevice(1)\n"));
  double_control("cuda")->results["SetDevice"] = 999;
  CHECK(device->with_current([]() -> Status { return {}; }).code() == DICOMM_DEVICE_FAILED);
  event.reset();
  stream.reset();
  standard.reset();
  memory.reset();
  pinned.reset();
  CHECK(device->close(kSecond).ok());
}

TEST_CASE("memory of another chip or of nobody is not owned") {
  auto device = cuda(), other = open(member("nvidia", "cuda"), 0);
  std::unique_ptr<Allocation> memory;
  REQUIRE(other->allocate(100, memory).ok());
  CHECK(other->owns(memory->data()));
  CHECK_FALSE(device->owns(memory->data()));
  int on_stack = 0;
  CHECK_FALSE(device->owns(&on_stack));
  memory.reset();
  CHECK(device->close(kSecond).ok());
  CHECK(other->close(kSecond).ok());
}

TEST_CASE("memory types are read as the run time's version numbers them") {
  auto *control = double_control("hip");
  for (const bool renumbered : {false, true}) {  // the double numbers them as before ROCm 6
    control->version = renumbered ? 60200000 : 0;
    auto device = hip();
    std::unique_ptr<Allocation> memory;
    REQUIRE(device->allocate(100, memory).ok());
    CHECK(device->owns(memory->data()) == !renumbered);
    memory.reset();
    CHECK(device->close(kSecond).ok());
  }
  control->version = 0;
}

TEST_CASE("an event is pending until the run time says that it is done, or has failed") {
  auto device = cuda();
  auto *control = double_control("cuda");
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Event> event;
  REQUIRE(device->make_stream(stream).ok());
  REQUIRE(stream->record(event).ok());
  control->async_error = 600;  // holds streams
  bool done = true;
  CHECK(event->query(done).ok());
  CHECK_FALSE(done);
  control->async_error = 0;
  CHECK(event->query(done).ok());
  CHECK(done);
  control->results["EventQuery"] = 700;
  CHECK(event->query(done).code() == DICOMM_DEVICE_FAILED);
  CHECK(done);
  for (const char *call : {"EventCreateWithFlags", "EventRecord"}) {
    control->results[call] = 700;
    CHECK(stream->record(event).code() == DICOMM_DEVICE_FAILED);
  }
  control->results["MemcpyAsync"] = 700;
  CHECK(stream->copy_to_host(&done, &done, 1).code() == DICOMM_DEVICE_FAILED);
  control->results["StreamWaitEvent"] = 700;
  CHECK(stream->wait(*event).code() == DICOMM_DEVICE_FAILED);
  control->results["StreamAddCallback"] = 700;
  CHECK(stream->notify([](void *) {}, nullptr).code() == DICOMM_DEVICE_FAILED);
  event.reset();
  stream.reset();
  CHECK(device->close(kSecond).ok());
}

TEST_CASE("closing a chip gives up on a stream that does not end, and leaves it behind") {
  auto device = cuda();
  auto *control = double_control("cuda");
  std::unique_ptr<Stream> stream;
  REQUIRE(device->make_stream(stream).ok());
  control->async_error = 600;
  const Nanos begun = now();
  CHECK(device->close(30 * kMillisecond).code() == DICOMM_TIMED_OUT);
  CHECK(now() - begun >= 30 * kMillisecond);
  CHECK(now() - begun < 5 * kSecond);
  control->async_error = 0;
  CHECK_FALSE(contains(calls("cuda", [&] { stream.reset(); }), "StreamSynchronize"));
}

TEST_CASE("device memory is exported by whole pages") {
  auto device = cuda();
  CHECK(device->capabilities().exports_dmabuf);
  std::unique_ptr<Allocation> memory;
  REQUIRE(device->allocate(3 * 4096, memory).ok());
  auto *page = reinterpret_cast<char *>((reinterpret_cast<uintptr_t>(memory->data()) + 4095) / 4096 * 4096);
  DmaBuf out;
  CHECK(contains(calls("cuda_driver", [&] { CHECK(device->export_dmabuf(page + 100, 4000, out).ok()); }),
                 "cuMemGetHandleForAddressRange(0 bytes 8192 type 1 flags 0)"));
  CHECK(out.offset == 100);
  REQUIRE(out.fd >= 0);
  ::close(out.fd);
  double_control("cuda_driver")->results["cuMemGetHandleForAddressRange"] = 1;
  const Status failed = device->export_dmabuf(page, 4096, out);
  CHECK(failed.code() == DICOMM_DEVICE_FAILED);
  CHECK(failed.failure()->foreign_domain == "cuda driver");
  double_control("cuda_driver")->results["cuDeviceGetAttribute"] = 1;
  auto without = cuda();
  CHECK_FALSE(without->capabilities().exports_dmabuf);
  memory.reset();
  CHECK(device->close(kSecond).ok());
  CHECK(without->close(kSecond).ok());
}

TEST_CASE("a chip has the bus address that every process sees") {
  auto device = cuda();
  CHECK(device->bus_address() == "0000:02:00.0");
  double_control("cuda")->results["DeviceGetPCIBusId"] = 801;
  CHECK(device->bus_address().empty());
  CHECK(device->close(kSecond).ok());
}

TEST_CASE("what cards wrote is flushed where the chip asks for it, and allocations are told apart") {
  auto device = cuda();
  auto *driver = double_control("cuda_driver");
  char *const low = reinterpret_cast<char *>(uintptr_t{3} << 24);
  CHECK(device->allocation_number(low) == 3);
  CHECK(device->allocation_number(low + (1 << 24)) == 4);
  CHECK(contains(calls("cuda_driver", [&] { CHECK(device->see_card_writes().ok()); }),
                 "cuFlushGPUDirectRDMAWrites(0, 100)"));
  driver->results["cuFlushGPUDirectRDMAWrites"] = 801;
  const Status failed = device->see_card_writes();
  CHECK(failed.code() == DICOMM_DEVICE_FAILED);
  CHECK(failed.failure()->foreign_code == 801);
  driver->results["cuPointerGetAttribute"] = 1;
  CHECK(device->allocation_number(low) == 0);
  auto other = hip();  // has no such functions
  CHECK(other->see_card_writes().ok());
  CHECK(other->allocation_number(low) == 0);
  CHECK(device->close(kSecond).ok());
  CHECK(other->close(kSecond).ok());
}

}  // namespace

}  // namespace dicomm::test
