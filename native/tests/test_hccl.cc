// HCCL's implementation over a double of the library: what it is called with, what its codes become, and what
// happens where it is old or slow.
#include <doctest/doctest.h>

#include "ccl/hccl/hccl.h"
#include "ccl/registry.h"
#include "ccl_suite.h"
#include "doubles/double.h"
#include "host_device.h"

using namespace dicomm;
using test::HostDevice;

namespace {

suite::CclSetup setup(const char *file) {
  return {[=](std::unique_ptr<Ccl> &out) { return open_hccl({test::double_path(file)}, out); },
          [](int rank, std::unique_ptr<Device> &out) {
            out = std::make_unique<HostDevice>("ascend", rank);
            return Status();
          }};
}

// A group over a double, and what it was called with. Rank 0 of `size`; the others are not there.
struct Lone {
  explicit Lone(const char *file = "hccl") : control(*test::double_control(file)), device("ascend") {
    control.results.clear();
    control.async_error = 0;
    REQUIRE(setup(file).open(library).ok());
    REQUIRE(library->make_id(id).ok());
    REQUIRE(library->join(id, 0, 1, device, 10 * kSecond, group).ok());
    REQUIRE(device.make_stream(stream).ok());
    control.log.clear();
  }
  std::string log() { return std::exchange(control.log, ""); }

  doubles::Control &control;
  HostDevice device;
  std::unique_ptr<Ccl> library;
  CclId id;
  std::unique_ptr<CclGroup> group;
  std::unique_ptr<Stream> stream;
};

template <class... Parts>
std::string line(const Parts &...parts) {
  return concat(parts...) + "\n";
}

}  // namespace

DICOMM_CCL_SUITE("hccl double", setup("hccl"));
DICOMM_CCL_SUITE("hccl old double", setup("hccl_old"));

TEST_CASE("hccl: every function gets its arguments in the vendor's order and numbering") {
  Lone one;
  int32_t from[4] = {1, 2, 3, 4}, to[4] = {};
  void *const send = from, *const recv = to;
  const void *const at = one.stream->native();
  Stream &stream = *one.stream;

  CHECK(one.group->allreduce(send, recv, 3, DICOMM_INT32, DICOMM_MIN, stream).ok());
  CHECK(one.log() == line("AllReduce(send=", send, " recv=", recv, " count=3 type=2 op=3 stream=", at, ")"));
  CHECK(one.group->reduce(send, recv, 2, DICOMM_BFLOAT16, DICOMM_MAX, 0, stream).ok());
  CHECK(one.log() ==
        line("Reduce(send=", send, " recv=", recv, " count=2 type=11 op=2 root=0 stream=", at, ")"));
  CHECK(one.group->reduce_scatter(send, recv, 1, DICOMM_INT64, DICOMM_PROD, stream).ok());
  CHECK(one.log() ==
        line("ReduceScatter(send=", send, " recv=", recv, " count=1 type=5 op=1 stream=", at, ")"));
  CHECK(one.group->allgather(send, recv, 4, DICOMM_FLOAT16, stream).ok());
  CHECK(one.log() == line("AllGather(send=", send, " recv=", recv, " count=4 type=3 stream=", at, ")"));

  // One buffer: the root's input is copied there first.
  to[3] = 0;
  CHECK(one.group->broadcast(send, recv, 4, DICOMM_FLOAT32, 0, stream).ok());
  CHECK(one.log() == line("Broadcast(buf=", recv, " count=4 type=4 root=0 stream=", at, ")"));
  CHECK(to[3] == 4);

  // What the library does not know moves as bytes; complex numbers add as pairs, bools by a maximum.
  CHECK(one.group->allgather(send, recv, 4, DICOMM_FLOAT8_E4M3FN, stream).ok());
  CHECK(one.log() == line("AllGather(send=", send, " recv=", recv, " count=4 type=7 stream=", at, ")"));
  CHECK(one.group->allreduce(send, recv, 1, DICOMM_COMPLEX64, DICOMM_SUM, stream).ok());
  CHECK(one.log() == line("AllReduce(send=", send, " recv=", recv, " count=2 type=4 op=0 stream=", at, ")"));
  CHECK(one.group->allreduce(send, recv, 1, DICOMM_BOOL, DICOMM_SUM, stream).ok());
  CHECK(one.log() == line("AllReduce(send=", send, " recv=", recv, " count=1 type=0 op=2 stream=", at, ")"));

  // Nothing is called where there is nothing to do.
  CHECK(one.group->allreduce(send, recv, 0, DICOMM_INT32, DICOMM_SUM, stream).ok());
  CHECK(one.group->broadcast(send, recv, 0, DICOMM_INT32, 0, stream).ok());
  CHECK(one.group->allgather(send, recv, 0, DICOMM_INT32, stream).ok());
  CHECK(one.log() == "");
  CHECK(one.group->close(kSecond).ok());
  CHECK(one.log() == "CommDestroy(rank=0)\n");
  CHECK(one.group->allgather(send, recv, 0, DICOMM_INT32, stream).code() == DICOMM_ABORTED);
}

TEST_CASE("hccl: sends and receives, one by one and as a batch over several streams") {
  doubles::Control &control = *test::double_control("hccl");
  suite::ccl::run_group(setup("hccl"), 2, [&](suite::ccl::Member &m, int rank) {
    void *out = m.room(DICOMM_FLOAT64, 2), *in = m.room(DICOMM_FLOAT64, 2);
    std::unique_ptr<Stream> second;
    m.check(m.device->make_stream(second), "make_stream");
    CHECK(m.group->send(out, 1, DICOMM_INT8, rank, *m.stream).code() == DICOMM_INVALID_ARGUMENT);
    m.check(m.group->begin(), "begin");
    CHECK(m.group->allgather(out, in, 1, DICOMM_INT8, *m.stream).code() == DICOMM_INVALID_ARGUMENT);
    m.check(m.group->send(out, 2, DICOMM_FLOAT64, 1 - rank, *m.stream), "send");
    m.check(m.group->recv(in, 1, DICOMM_COMPLEX128, 1 - rank, *second), "recv");
    m.check(m.group->end(), "end");
    if (rank == 1) return m.check(m.group->recv(in, 2, DICOMM_INT16, 0, *m.stream), "recv"), void();
    m.check(m.group->send(out, 2, DICOMM_INT16, 1, *m.stream), "send");
    const std::lock_guard lock(control.mutex);
    CHECK(control.log.find(
              line("BatchSendRecv(send count=2 type=10 peer=1, recv count=16 type=7 peer=1, stream=",
                   m.stream->native(), ")")) != std::string::npos);
    CHECK(control.log.find(line("Send(send=", out, " count=2 type=1 peer=1 stream=", m.stream->native(),
                                ")")) != std::string::npos);
  });
}

TEST_CASE("hccl: codes become statuses, and are kept") {
  const std::pair<int, dicomm_status> codes[] = {{1, DICOMM_INVALID_ARGUMENT}, {4, DICOMM_CCL_FAILED},
                                                 {5, DICOMM_NOT_SUPPORTED},    {9, DICOMM_TIMED_OUT},
                                                 {11, DICOMM_CONNECT_FAILED},  {14, DICOMM_PEER_LOST},
                                                 {15, DICOMM_DEVICE_FAILED},   {21, DICOMM_PEER_LOST},
                                                 {24, DICOMM_NO_MEMORY},       {99, DICOMM_CCL_FAILED}};
  for (const auto &[code, status] : codes) {
    Lone one;
    one.control.results["AllReduce"] = code;
    float data = 0;
    const Status got = one.group->allreduce(&data, &data, 1, DICOMM_FLOAT32, DICOMM_SUM, *one.stream);
    REQUIRE(got.failure() != nullptr);
    CHECK(got.code() == status);
    CHECK(got.failure()->foreign_code == code);
    CHECK(got.failure()->foreign_domain == "hccl");
    const std::string text = got.failure()->text;
    CHECK(text.find("HCCL (" + test::double_path("hccl") + "): HcclAllReduce: ") == 0);
    if (code == 4) CHECK(text.find("HCCL_E_INTERNAL, internal error of the double") != std::string::npos);
    if (code == 11) CHECK(text.find("HCCL_E_TCP_CONNECT; its logs") != std::string::npos);
    if (code == 99) CHECK(text.find("does not know") != std::string::npos);
  }
  Lone one;
  CHECK(one.group->async_error().ok());
  one.control.async_error = 21;
  CHECK(one.group->async_error().code() == DICOMM_PEER_LOST);
  one.control.async_error = 0;
}

TEST_CASE("hccl: what it lacks is said in the capabilities") {
  const Lone one, old("hccl_old");
  const CclCapabilities can = one.library->capabilities();
  CHECK(can.send_recv);
  CHECK(can.tells_errors);
  CHECK_FALSE(can.aborts);
  CHECK_FALSE(old.library->capabilities().send_recv);
  CHECK_FALSE(old.library->capabilities().tells_errors);
  CHECK(old.group->begin().code() == DICOMM_NOT_SUPPORTED);
  CHECK(old.group->async_error().ok());
  CHECK(can.reduces(DICOMM_BFLOAT16, DICOMM_SUM));
  CHECK(can.reduces(DICOMM_COMPLEX64, DICOMM_SUM));
  for (const auto &[dtype, op] : {std::pair{DICOMM_BFLOAT16, DICOMM_PROD},
                                  {DICOMM_INT16, DICOMM_PROD},
                                  {DICOMM_FLOAT64, DICOMM_SUM},
                                  {DICOMM_UINT8, DICOMM_MAX},
                                  {DICOMM_FLOAT32, DICOMM_AVG},
                                  {DICOMM_FLOAT32, DICOMM_PREMUL_SUM},
                                  {DICOMM_INT32, DICOMM_BAND},
                                  {DICOMM_FLOAT8_E5M2, DICOMM_SUM},
                                  {DICOMM_BOOL, DICOMM_BXOR}})
    CHECK_FALSE(can.reduces(dtype, op));
  const float factor = 1;
  CHECK(one.group->set_factor(&factor, DICOMM_FLOAT32).code() == DICOMM_NOT_SUPPORTED);
  for (const dicomm_dtype dtype : suite::ccl::kDtypes) CHECK(can.moves(dtype));
}

TEST_CASE("hccl: a library that is absent or another says so") {
  std::unique_ptr<Ccl> out;
  const Status missing = open_hccl({"libdicomm-absent.so"}, out);
  CHECK(missing.code() == DICOMM_NOT_SUPPORTED);
  CHECK(missing.message().find("cannot open HCCL: libdicomm-absent.so: cannot open") == 0);
  CHECK(missing.message().find("CANN toolkit") != std::string::npos);
  const Status other = open_hccl({test::double_path("nccl")}, out);
  CHECK(other.code() == DICOMM_NOT_SUPPORTED);
  CHECK(other.message().find("lacks HcclGetRootInfo, HcclCommInitRootInfo") != std::string::npos);
  CHECK_FALSE(out);
  for (const std::string &vendor : ccl_vendors()) {  // none is here, or it opens
    dicomm_chip chip{};
    chip.vendor = vendor.c_str();
    const Status opened = open_ccl(chip, "", out);
    CHECK((opened.ok() || opened.code() == DICOMM_NOT_SUPPORTED));
  }
}

TEST_CASE("hccl: a call that does not come back is left behind in time") {
  Lone one;
  SUBCASE("joining") {
    one.control.delays["CommInitRootInfo"] = 800;
    std::unique_ptr<CclGroup> group;
    const Nanos start = now();
    const Status joined = one.library->join(one.id, 0, 1, one.device, kSecond / 5, group);
    CHECK(now() - start < kSecond * 7 / 10);
    CHECK(joined.code() == DICOMM_TIMED_OUT);
    CHECK(joined.message().find("left behind") != std::string::npos);
    std::this_thread::sleep_for(std::chrono::seconds(1));  // it comes back, and discards what it made
    const std::lock_guard lock(one.control.mutex);
    CHECK(one.control.log == "CommInitRootInfo(size=1 rank=0)\nCommDestroy(rank=0)\n");
  }
  SUBCASE("destroying") {
    one.control.delays["CommDestroy"] = 800;
    const Nanos start = now();
    CHECK(one.group->close(kSecond / 5).code() == DICOMM_TIMED_OUT);
    CHECK(now() - start < kSecond * 7 / 10);
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  SUBCASE("aborting while somebody is inside") {
    one.control.delays["AllReduce"] = 800;
    float data = 1;
    std::thread caller([&] {
      const Status called = one.group->allreduce(&data, &data, 1, DICOMM_FLOAT32, DICOMM_SUM, *one.stream);
      CHECK(called.ok());
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const Nanos start = now();
    one.group->abort(kSecond / 5);
    CHECK(now() - start < kSecond * 6 / 10);
    caller.join();
    const std::lock_guard lock(one.control.mutex);
    CHECK(one.control.log.find("CommDestroy") == std::string::npos);  // the communicator is left alone
  }
}
