// Ascend's run time, on a double: the contract, and how it is called.

#include "device/acl/device.h"
#include "device/acl/runtime.h"
#include "device_suite.h"
#include "doubles/double.h"

namespace dicomm::test {

namespace {

std::unique_ptr<Device> open(int index) {
  std::unique_ptr<Device> device;
  DICOMM_SUITE_OK(AclDevice::open({double_path("acl")}, index, device));
  return device;
}

std::unique_ptr<Device> acl() { return open(1); }

DICOMM_DEVICE_SUITE("acl double", acl)

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

template <class Body>
std::string calls(Body body) {
  auto *control = double_control("acl");
  const size_t before = control->log.size();
  body();
  return control->log.substr(before);
}

TEST_CASE("CANN that is missing is NOT_SUPPORTED and says what was tried and how to get it") {
  std::unique_ptr<Device> device;
  const Status status = AclDevice::open({"libabsent_acl.so"}, 0, device);
  CHECK(status.code() == DICOMM_NOT_SUPPORTED);
  for (const char *part : {"libabsent_acl.so", "cannot open", "CANN toolkit"})
    CHECK(contains(status.message(), part));
  const Status other = AclDevice::open({double_path("cuda")}, 0, device);
  CHECK(other.code() == DICOMM_NOT_SUPPORTED);
  CHECK(contains(other.message(), "has no function aclInit"));
}

TEST_CASE("codes of AscendCL are mapped and kept, with its message") {
  auto device = acl();
  auto *control = double_control("acl");
  std::unique_ptr<Allocation> memory;
  const struct {
    int code;
    dicomm_status status;
  } table[] = {{207001, DICOMM_NO_MEMORY},        {200000, DICOMM_NO_MEMORY},
               {100000, DICOMM_INVALID_ARGUMENT}, {107000, DICOMM_INVALID_ARGUMENT},
               {107001, DICOMM_INVALID_ARGUMENT}, {207000, DICOMM_NOT_SUPPORTED},
               {200001, DICOMM_NOT_SUPPORTED},    {507899, DICOMM_DEVICE_FAILED}};
  for (const auto &row : table) {
    control->results["aclrtMalloc"] = row.code;
    const Status status = device->allocate(100, memory);
    CHECK(status.code() == row.status);
    REQUIRE(status.failure() != nullptr);
    CHECK(status.failure()->foreign_domain == "acl");
    CHECK(status.failure()->foreign_code == row.code);
    CHECK(contains(status.message(), "aclrtMalloc failed: EZ9999: the double says so"));
  }
  CHECK(device->close(kSecond).ok());
}

TEST_CASE("AscendCL that the trainer has initialized is used as it is") {
  auto *control = double_control("acl");
  control->results["aclInit"] = 100002;
  auto device = acl();
  const std::string text = device->describe();
  for (const char *part : {"ascend 1", "Double910", "32768 MiB", "version 1.15.3"})
    CHECK_MESSAGE(contains(text, part), text);
  CHECK(device->close(kSecond).ok());
  control->results["aclInit"] = 500000;
  CHECK(AclDevice::open({double_path("acl")}, 0, device).code() == DICOMM_DEVICE_FAILED);
  const Status beyond = AclDevice::open({double_path("acl")}, 2, device);
  CHECK(beyond.code() == DICOMM_INVALID_ARGUMENT);
  CHECK(contains(beyond.message(), "this process sees 2"));
}

TEST_CASE("calls of AscendCL are made in the chip's context, and the caller's is put back") {
  std::unique_ptr<Device> first = open(0);
  // The thread has no context of its own, then that of chip 0.
  auto *set = reinterpret_cast<int (*)(int)>(
      ::dlsym(::dlopen(double_path("acl").c_str(), RTLD_NOW | RTLD_LOCAL), "aclrtSetDevice"));
  REQUIRE(set(0) == 0);
  auto device = acl();
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Allocation> memory, pinned;
  CHECK(contains(calls([&] { CHECK(device->make_stream(stream).ok()); }),
                 "aclrtSetCurrentContext(1)\naclrtCreateStream(on 1)\naclrtSetCurrentContext(0)\n"));
  CHECK(contains(calls([&] { CHECK(device->allocate(100, memory).ok()); }),
                 "aclrtMalloc(100 policy 0 on 1)\naclrtSetCurrentContext(0)"));
  REQUIRE(device->allocate_pinned(100, pinned).ok());
  const auto copied = [&](const char *part, const Status &status) {
    CHECK(status.ok());
    return contains(double_control("acl")->log, part);
  };
  CHECK(copied("room 90 bytes 90 kind 2 on 1", stream->copy_to_host(pinned->data(), memory->data(), 90)));
  CHECK(copied("room 91 bytes 91 kind 1 on 1", stream->copy_to_device(memory->data(), pinned->data(), 91)));
  CHECK(copied("room 92 bytes 92 kind 3 on 1", stream->copy_on_device(memory->data(), memory->data(), 92)));
  CHECK_FALSE(first->owns(memory->data()));
  CHECK(device->owns(memory->data()));
  const Status inside = device->with_current([&]() -> Status {
    CHECK(calls([&] { CHECK(first->owns(memory->data()) == false); }) ==
          "aclrtSetCurrentContext(0)\naclrtSetCurrentContext(1)\n");
    return {};
  });
  CHECK(inside.ok());
  double_control("acl")->results["aclrtSetCurrentContext"] = 507899;
  CHECK(device->with_current([]() -> Status { return {}; }).code() == DICOMM_DEVICE_FAILED);
  stream.reset();
  memory.reset();
  pinned.reset();
  CHECK(device->close(kSecond).ok());
  CHECK(first->close(kSecond).ok());
}

TEST_CASE("an event of AscendCL lives until it is done and nothing waits for it") {
  auto device = acl();
  auto *control = double_control("acl");
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Event> event, next;
  REQUIRE(device->make_stream(stream).ok());
  REQUIRE(stream->record(event).ok());
  control->async_error = 1;
  bool done = true;
  CHECK(event->query(done).ok());
  CHECK_FALSE(done);
  event.reset();
  CHECK_FALSE(contains(calls([&] { CHECK(stream->record(next).ok()); }), "aclrtDestroyEvent"));
  control->async_error = 0;
  CHECK(contains(calls([&] { CHECK(stream->record(event).ok()); }), "aclrtDestroyEvent"));
  control->results["aclrtQueryEventStatus"] = 507899;
  CHECK(event->query(done).code() == DICOMM_DEVICE_FAILED);
  CHECK(done);
  for (const char *call : {"aclrtCreateEventExWithFlag", "aclrtRecordEvent"}) {
    control->results[call] = 507899;
    CHECK(stream->record(next).code() == DICOMM_DEVICE_FAILED);
  }
  control->results["aclrtStreamWaitEvent"] = 507899;
  CHECK(stream->wait(*event).code() == DICOMM_DEVICE_FAILED);
  for (const char *call : {"aclrtCreateStream", "aclrtSubscribeReport", "aclrtLaunchCallback"}) {
    control->results[call] = 507899;
    CHECK(stream->notify([](void *) {}, nullptr).code() == DICOMM_DEVICE_FAILED);
  }
  event.reset();
  next.reset();
  stream.reset();
  CHECK(device->close(kSecond).ok());
}

TEST_CASE("notices of AscendCL leave from a stream of our own and come from one thread") {
  auto device = acl();
  std::unique_ptr<Stream> stream, wrapped;
  REQUIRE(device->make_stream(stream).ok());
  REQUIRE(device->wrap(stream->native(), wrapped).ok());
  std::atomic<int> told{0};
  const auto count = [](void *arg) { ++*static_cast<std::atomic<int> *>(arg); };
  const std::string log = calls([&] {
    for (int i = 0; i < 3; ++i) CHECK(wrapped->notify(count, &told).ok());
  });
  char of_stream[64];
  std::snprintf(of_stream, sizeof of_stream, "aclrtSubscribeReport(%p)", stream->native());
  CHECK_FALSE(contains(log, of_stream));
  CHECK(contains(log, "aclrtLaunchCallback(block 1"));
  wrapped.reset();  // waits for its notices
  CHECK(told == 3);
  stream.reset();
  CHECK(device->close(kSecond).ok());
}

TEST_CASE("closing an Ascend chip gives up on a stream that does not end, and leaves it behind") {
  auto device = acl();
  auto *control = double_control("acl");
  std::unique_ptr<Stream> stream;
  REQUIRE(device->make_stream(stream).ok());
  control->async_error = 1;
  const Nanos begun = now();
  CHECK(device->close(30 * kMillisecond).code() == DICOMM_TIMED_OUT);
  CHECK(now() - begun < 5 * kSecond);
  control->async_error = 0;
  CHECK_FALSE(contains(calls([&] { stream.reset(); }), "aclrtSynchronizeStream"));
}

}  // namespace

}  // namespace dicomm::test
