// The NCCL family's implementation over doubles of its libraries: what they are called with, what their codes
// become, and what happens where they are old, incomplete, slow or broken.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include "ccl/nccl/nccl.h"
#include "ccl/registry.h"
#include "ccl_suite.h"
#include "doubles/double.h"
#include "host_device.h"

using namespace dicomm;
using test::HostDevice;

namespace {

// The row of the family whose double is `file`.
nccl::Member member_of(const char *vendor, const char *file) {
  for (nccl::Member member : nccl::members()) {
    if (member.vendor != vendor) continue;
    member.files = {test::double_path(file)};
    return member;
  }
  FAIL("no row for this vendor");
  return {};
}

suite::CclSetup setup(const char *vendor, const char *file, int version) {
  test::double_control(file)->version = version;
  return {[=](std::unique_ptr<Ccl> &out) { return open_nccl(member_of(vendor, file), out); },
          [=](int rank, std::unique_ptr<Device> &out) {
            out = std::make_unique<HostDevice>(vendor, rank);
            return Status();
          }};
}

}  // namespace

DICOMM_CCL_SUITE("nccl 2.32 double", setup("nvidia", "nccl", 23203));
DICOMM_CCL_SUITE("nccl 2.8 double", setup("nvidia", "nccl_old", 2804));
DICOMM_CCL_SUITE("mccl 2.16 double", setup("metax", "mccl", 21605));

namespace {

// A group of one rank over a double, and what it was called with.
struct Lone {
  explicit Lone(const char *file = "nccl", int version = 23203, const char *vendor = "nvidia")
      : control(*test::double_control(file)), device(vendor, 5) {
    control.version = version;
    control.results.clear();
    control.async_error = 0;
    const Status opened = open_nccl(member_of(vendor, file), library);
    INFO(opened.message());
    REQUIRE(opened.ok());
    REQUIRE(library->make_id(id).ok());
    const Status joined = library->join(id, 0, 1, device, 10 * kSecond, group);
    INFO(joined.message());
    REQUIRE(joined.ok());
    REQUIRE(device.make_stream(stream).ok());
    control.log.clear();
  }
  // The calls since the last time.
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

TEST_CASE("nccl: every function gets its arguments in the vendor's order and numbering") {
  Lone one;
  int32_t from[4] = {}, to[4] = {};
  void *const send = from, *const recv = to;
  const void *const at = one.stream->native();
  Stream &stream = *one.stream;

  CHECK(one.group->allreduce(send, recv, 3, DICOMM_INT32, DICOMM_MIN, stream).ok());
  CHECK(one.log() == line("AllReduce(send=", send, " recv=", recv, " count=3 type=2 op=3 stream=", at, ")"));
  CHECK(one.group->reduce(send, recv, 2, DICOMM_BFLOAT16, DICOMM_MAX, 0, stream).ok());
  CHECK(one.log() ==
        line("Reduce(send=", send, " recv=", recv, " count=2 type=9 op=2 root=0 stream=", at, ")"));
  CHECK(one.group->reduce_scatter(send, recv, 1, DICOMM_UINT64, DICOMM_PROD, stream).ok());
  CHECK(one.log() ==
        line("ReduceScatter(send=", send, " recv=", recv, " count=1 type=5 op=1 stream=", at, ")"));
  CHECK(one.group->broadcast(send, recv, 4, DICOMM_FLOAT16, 0, stream).ok());
  CHECK(one.log() ==
        line("Broadcast(send=", send, " recv=", recv, " count=4 type=6 root=0 stream=", at, ")"));
  CHECK(one.group->allgather(send, recv, 4, DICOMM_FLOAT8_E5M2, stream).ok());
  CHECK(one.log() == line("AllGather(send=", send, " recv=", recv, " count=4 type=11 stream=", at, ")"));

  // What the library does not know moves as bytes; complex numbers add as pairs, bools by a maximum.
  CHECK(one.group->allgather(send, recv, 2, DICOMM_INT16, stream).ok());
  CHECK(one.log() == line("AllGather(send=", send, " recv=", recv, " count=4 type=1 stream=", at, ")"));
  CHECK(one.group->allreduce(send, recv, 1, DICOMM_COMPLEX64, DICOMM_AVG, stream).ok());
  CHECK(one.log() == line("AllReduce(send=", send, " recv=", recv, " count=2 type=7 op=4 stream=", at, ")"));
  CHECK(one.group->allreduce(send, recv, 1, DICOMM_BOOL, DICOMM_SUM, stream).ok());
  CHECK(one.log() == line("AllReduce(send=", send, " recv=", recv, " count=1 type=1 op=2 stream=", at, ")"));

  // A factor makes an operation of its own, which a new factor and close give back.
  const double factor = 2;
  CHECK(one.group->allreduce(send, recv, 1, DICOMM_FLOAT64, DICOMM_PREMUL_SUM, stream).code() ==
        DICOMM_INVALID_ARGUMENT);
  CHECK(one.group->set_factor(&factor, DICOMM_FLOAT64).ok());
  CHECK(one.log() == "RedOpCreatePreMulSum(type=8 residence=1)\n");
  CHECK(one.group->allreduce(send, recv, 1, DICOMM_FLOAT64, DICOMM_PREMUL_SUM, stream).ok());
  CHECK(one.log() == line("AllReduce(send=", send, " recv=", recv, " count=1 type=8 op=5 stream=", at, ")"));
  CHECK(one.group->set_factor(&factor, DICOMM_FLOAT64).ok());
  CHECK(one.log() == "RedOpDestroy(op=5)\nRedOpCreatePreMulSum(type=8 residence=1)\n");
  CHECK(one.group->close(kSecond).ok());
  CHECK(one.log() == "RedOpDestroy(op=6)\nCommFinalize(rank=0)\nCommDestroy(rank=0)\n");
}

TEST_CASE("nccl: sends and receives, in the vendor's group and without") {
  const suite::CclSetup pair = setup("nvidia", "nccl", 23203);
  doubles::Control &control = *test::double_control("nccl");
  suite::ccl::run_group(pair, 2, [&](suite::ccl::Member &m, int rank) {
    if (rank == 1) {
      void *data = m.room(DICOMM_FLOAT64, 2);
      m.check(m.group->recv(data, 2, DICOMM_FLOAT64, 0, *m.stream), "recv");
      return;
    }
    void *data = m.room(DICOMM_FLOAT64, 2);
    CHECK(m.group->send(data, 1, DICOMM_INT8, 0, *m.stream).code() == DICOMM_INVALID_ARGUMENT);
    CHECK(m.group->send(data, 1, DICOMM_INT8, 2, *m.stream).code() == DICOMM_INVALID_ARGUMENT);
    CHECK(m.group->end().code() == DICOMM_INVALID_ARGUMENT);
    m.check(m.group->begin(), "begin");
    CHECK(m.group->begin().code() == DICOMM_INVALID_ARGUMENT);
    CHECK(m.group->allgather(data, data, 1, DICOMM_INT8, *m.stream).code() == DICOMM_INVALID_ARGUMENT);
    m.check(m.group->send(data, 2, DICOMM_FLOAT64, 1, *m.stream), "send");
    m.check(m.group->end(), "end");
    const std::lock_guard lock(control.mutex);
    const size_t start = control.log.find("GroupStart()\n");
    const std::string sent =
        line("Send(send=", data, " count=2 type=8 peer=1 stream=", m.stream->native(), ")");
    CHECK(control.log.find(sent) > start);
    CHECK(control.log.find("GroupEnd()\n") > control.log.find(sent));
  });
}

TEST_CASE("nccl: codes become statuses, and are kept") {
  const std::pair<int, dicomm_status> codes[] = {{1, DICOMM_DEVICE_FAILED},    {2, DICOMM_CCL_FAILED},
                                                 {3, DICOMM_CCL_FAILED},       {4, DICOMM_INVALID_ARGUMENT},
                                                 {5, DICOMM_INVALID_ARGUMENT}, {6, DICOMM_PEER_LOST},
                                                 {8, DICOMM_TIMED_OUT},        {77, DICOMM_CCL_FAILED}};
  for (const auto &[code, status] : codes) {
    Lone one;
    one.control.results["AllReduce"] = code;
    float data = 0;
    const Status got = one.group->allreduce(&data, &data, 1, DICOMM_FLOAT32, DICOMM_SUM, *one.stream);
    REQUIRE(got.failure() != nullptr);
    CHECK(got.code() == status);
    CHECK(got.failure()->foreign_code == code);
    CHECK(got.failure()->foreign_domain == "nccl");
    const std::string text = got.failure()->text;
    CHECK(text.find("NCCL 2.32.3 (") == 0);
    CHECK(text.find(test::double_path("nccl")) != std::string::npos);
    CHECK(text.find("): ncclAllReduce: ") != std::string::npos);
    CHECK(text.find(code == 3 ? "internal error - of the double" : "some error of the double") !=
          std::string::npos);
    CHECK(text.find("its last message: the double's last words") != std::string::npos);
    one.group->abort(kSecond);
  }
}

TEST_CASE("nccl: a failure inside a group closes the vendor's group") {
  const suite::CclSetup pair = setup("nvidia", "nccl", 23203);
  doubles::Control &control = *test::double_control("nccl");
  const CclId id = suite::ccl::make_id(pair);
  suite::ccl::run(pair, 2, [&](suite::ccl::Member &m, int rank) {
    m.check(m.library->join(id, rank, 2, *m.device, 10 * kSecond, m.group), "join");
    if (rank == 1) return m.group->abort(kSecond);
    void *data = m.room(DICOMM_FLOAT64, 1);
    {
      const std::lock_guard lock(control.mutex);
      control.results["Send"] = 3;
      control.log.clear();
    }
    m.check(m.group->begin(), "begin");
    m.check(m.group->send(data, 1, DICOMM_FLOAT64, 1, *m.stream), "send");
    CHECK(m.group->end().code() == DICOMM_CCL_FAILED);
    const std::lock_guard lock(control.mutex);
    CHECK(control.log.find("GroupEnd()") != std::string::npos);
  });
}

TEST_CASE("nccl: errors of enqueued work are told") {
  Lone one;
  CHECK(one.group->async_error().ok());
  one.control.async_error = 7;  // in progress is none
  CHECK(one.group->async_error().ok());
  one.control.async_error = 6;
  const Status lost = one.group->async_error();
  CHECK(lost.code() == DICOMM_PEER_LOST);
  REQUIRE(lost.failure() != nullptr);
  CHECK(lost.failure()->foreign_code == 6);
  one.control.async_error = 0;
  CHECK(one.log() == "");
}

TEST_CASE("nccl: a communicator is asked not to block from 2.14 on") {
  {
    Lone one;
    one.group.reset();
    CHECK(one.log() == "CommAbort(rank=0)\n");
    CHECK(one.library->join(one.id, 0, 1, one.device, kSecond, one.group).ok());
    CHECK(one.log() == "CommInitRankConfig(size=1 rank=0 config={24 0xcafebeef 21400 blocking=0})\n");
  }
  Lone old("nccl", 21399);
  CHECK(old.group->close(kSecond).ok());
  CHECK(old.log() == "CommDestroy(rank=0)\n");
  CHECK(old.library->join(old.id, 0, 1, old.device, kSecond, old.group).ok());
  CHECK(old.log() == "CommInitRank(size=1 rank=0)\n");
}

TEST_CASE("nccl: what versions and members lack is said in the capabilities") {
  const auto can = [](const Lone &one, dicomm_dtype dtype, dicomm_reduce op) {
    return one.library->capabilities().reduces(dtype, op);
  };
  const Lone now_("nccl", 23203), before_float8("nccl", 22399), before_premul("nccl", 21003);
  const Lone oldest("nccl_old", 2804), metax("mccl", 22400, "metax"), musa("mccl", 21100, "mthreads");
  CHECK(now_.library->describe().find("NCCL 2.32.3 (") == 0);
  CHECK(oldest.library->describe().find("NCCL 2.8.4 (") == 0);
  CHECK(musa.library->describe().find("MCCL of MUSA 2.11.0 (") == 0);
  CHECK(now_.library->capabilities().version == 23203);

  CHECK(can(now_, DICOMM_FLOAT8_E4M3FN, DICOMM_AVG));
  CHECK_FALSE(can(before_float8, DICOMM_FLOAT8_E4M3FN, DICOMM_SUM));
  CHECK_FALSE(can(metax, DICOMM_FLOAT8_E4M3FN, DICOMM_SUM));
  CHECK(can(musa, DICOMM_FLOAT32, DICOMM_PREMUL_SUM));
  CHECK_FALSE(can(before_premul, DICOMM_FLOAT32, DICOMM_PREMUL_SUM));
  CHECK(can(before_premul, DICOMM_BFLOAT16, DICOMM_AVG));
  CHECK_FALSE(can(oldest, DICOMM_BFLOAT16, DICOMM_SUM));
  CHECK_FALSE(can(oldest, DICOMM_FLOAT32, DICOMM_AVG));
  for (const Lone *one : {&now_, &oldest, &metax}) {
    CHECK(can(*one, DICOMM_FLOAT32, DICOMM_SUM));
    CHECK(can(*one, DICOMM_COMPLEX128, DICOMM_SUM));
    CHECK_FALSE(can(*one, DICOMM_COMPLEX128, DICOMM_PROD));
    CHECK_FALSE(can(*one, DICOMM_INT32, DICOMM_BXOR));
    CHECK_FALSE(can(*one, DICOMM_INT16, DICOMM_SUM));
    CHECK_FALSE(can(*one, DICOMM_BOOL, DICOMM_AVG));
    CHECK(one->library->capabilities().send_recv);
    CHECK(one->library->capabilities().aborts);
    CHECK(one->library->capabilities().tells_errors);
    for (const dicomm_dtype dtype : suite::ccl::kDtypes) CHECK(one->library->capabilities().moves(dtype));
  }
  // The bytes of a dtype the library does not know still move.
  CHECK(nccl::moving(2804, DICOMM_BFLOAT16).dtype == 1);
  CHECK(nccl::moving(2804, DICOMM_BFLOAT16).elements == 2);
  CHECK(nccl::moving(2804, DICOMM_COMPLEX128).elements == 16);
}

TEST_CASE("nccl: a library that is absent, incomplete or of another kind says so") {
  std::unique_ptr<Ccl> out;
  nccl::Member absent = nccl::members().front();
  absent.files = {"libdicomm-absent.so.2", "/nowhere/libdicomm-absent.so"};
  const Status missing = open_nccl(absent, out);
  CHECK(missing.code() == DICOMM_NOT_SUPPORTED);
  REQUIRE(missing.failure() != nullptr);
  const std::string text = missing.failure()->text;
  for (const char *part :
       {"cannot open NCCL", "libdicomm-absent.so.2: cannot open", "/nowhere/libdicomm-absent.so",
        "pip install nvidia-nccl-cu12", "apt install libnccl2"})
    CHECK(text.find(part) != std::string::npos);

  const Status incomplete = open_nccl(member_of("nvidia", "nccl_broken"), out);
  CHECK(incomplete.code() == DICOMM_NOT_SUPPORTED);
  CHECK(incomplete.message().find("lacks ncclAllReduce, ncclGroupEnd") != std::string::npos);
  CHECK(open_nccl(member_of("metax", "nccl"), out).message().find("lacks mcclGetVersion") !=
        std::string::npos);

  test::double_control("nccl")->results["GetVersion"] = 3;
  CHECK(open_nccl(member_of("nvidia", "nccl"), out).code() == DICOMM_CCL_FAILED);
  CHECK_FALSE(out);

  Lone one;
  HostDevice other("amd");
  const Status stranger = one.library->join(one.id, 0, 1, other, kSecond, one.group);
  CHECK(stranger.code() == DICOMM_INVALID_ARGUMENT);
  CHECK(stranger.message().find("serves chips of 'nvidia', not 'amd'") != std::string::npos);
  dicomm_chip chip{};
  chip.vendor = "zx81";
  const Status unknown = open_ccl(chip, "", out);
  CHECK(unknown.code() == DICOMM_INVALID_ARGUMENT);
  CHECK(unknown.message().find("nvidia amd hygon mthreads metax iluvatar ascend") != std::string::npos);
}

TEST_CASE("nccl: a call that does not come back is left behind in time") {
  SUBCASE("joining, where the library always blocks") {
    Lone one("nccl_old", 2804);
    one.control.delays["CommInitRank"] = 1000;
    std::unique_ptr<CclGroup> group;
    const Nanos start = now();
    const Status joined = one.library->join(one.id, 0, 1, one.device, kSecond / 5, group);
    CHECK(now() - start < kSecond * 7 / 10);
    CHECK(joined.code() == DICOMM_TIMED_OUT);
    CHECK(joined.message().find("the thread it runs on is left behind") != std::string::npos);
    std::this_thread::sleep_for(std::chrono::milliseconds(1200));  // it comes back, and discards what it made
    const std::lock_guard lock(one.control.mutex);
    CHECK(one.control.log == "CommInitRank(size=1 rank=0)\nCommAbort(rank=0)\n");
  }
  SUBCASE("destroying") {
    Lone one("nccl_old", 2804);
    one.control.delays["CommDestroy"] = 800;
    const Nanos start = now();
    CHECK(one.group->close(kSecond / 5).code() == DICOMM_TIMED_OUT);
    CHECK(now() - start < kSecond * 7 / 10);
    std::this_thread::sleep_for(std::chrono::milliseconds(900));
  }
  SUBCASE("aborting") {
    Lone one;
    one.control.delays["CommAbort"] = 800;
    const Nanos start = now();
    one.group->abort(kSecond / 5);
    CHECK(now() - start < kSecond * 7 / 10);
    std::this_thread::sleep_for(std::chrono::milliseconds(900));
  }
}

TEST_CASE("nccl: finalizing waits for peers no longer than it may, then aborts") {
  const suite::CclSetup pair = setup("nvidia", "nccl", 23203);
  const CclId id = suite::ccl::make_id(pair);
  std::atomic<bool> over{false};
  suite::ccl::run(pair, 2, [&](suite::ccl::Member &m, int rank) {
    m.check(m.library->join(id, rank, 2, *m.device, 10 * kSecond, m.group), "join");
    if (rank == 1) {
      while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return m.group->abort(kSecond);
    }
    const Nanos start = now();
    const Status closed = m.group->close(kSecond / 5);
    CHECK(closed.code() == DICOMM_TIMED_OUT);
    CHECK(closed.message().find("ncclCommFinalize is still in progress") != std::string::npos);
    CHECK(now() - start < 2 * kSecond);
    over = true;
  });
  const std::lock_guard lock(test::double_control("nccl")->mutex);
  CHECK(test::double_control("nccl")->log.find("CommAbort(rank=0)") != std::string::npos);
}

TEST_CASE("nccl: the vendor is called with its chip current on the thread") {
  struct Watched final : Device {  // notes what is current when the body runs
    explicit Watched(HostDevice &device) : host(device) {}
    const char *vendor() const override { return host.vendor(); }
    int index() const override { return host.index(); }
    std::string describe() const override { return host.describe(); }
    DeviceCapabilities capabilities() const override { return {}; }
    Status allocate(size_t n, std::unique_ptr<Allocation> &out) override { return host.allocate(n, out); }
    Status allocate_pinned(size_t n, std::unique_ptr<Allocation> &out) override {
      return host.allocate(n, out);
    }
    bool owns(const void *) const override { return true; }
    Status with_current(const std::function<Status()> &body) override {
      if (refuse) return Status::make(DICOMM_DEVICE_FAILED, "no such chip");
      ++entered;
      return host.with_current(body);
    }
    Status make_stream(std::unique_ptr<Stream> &out) override { return host.make_stream(out); }
    Status wrap(void *stream, std::unique_ptr<Stream> &out) override { return host.wrap(stream, out); }
    Status export_dmabuf(const void *p, size_t n, DmaBuf &out) override {
      return host.export_dmabuf(p, n, out);
    }
    Status close(int64_t) override { return {}; }
    HostDevice &host;
    std::atomic<int> entered{0};
    std::atomic<bool> refuse{false};
  };
  Lone one;
  Watched device(one.device);
  std::unique_ptr<CclGroup> group;
  CclId id;
  REQUIRE(one.library->make_id(id).ok());
  REQUIRE(one.library->join(id, 0, 1, device, kSecond, group).ok());
  CHECK(device.entered == 1);
  float data = 1;
  CHECK(group->allreduce(&data, &data, 1, DICOMM_FLOAT32, DICOMM_SUM, *one.stream).ok());
  CHECK(device.entered == 2);
  CHECK(HostDevice::current() == -1);
  device.refuse = true;
  CHECK(group->allreduce(&data, &data, 1, DICOMM_FLOAT32, DICOMM_SUM, *one.stream).code() ==
        DICOMM_DEVICE_FAILED);
  std::unique_ptr<CclGroup> none;
  CHECK(one.library->join(id, 0, 1, device, kSecond, none).code() == DICOMM_DEVICE_FAILED);
  device.refuse = false;
  CHECK(group->close(kSecond).ok());
}

TEST_CASE("number formats of the tests agree with the standards") {
  const auto bits = [](const test::Format &format, double value) {
    uint64_t out = 0;
    test::encode(format, value, &out);
    CHECK(test::decode(format, &out) == value);
    return out;
  };
  CHECK(bits(test::kFloat16, 1) == 0x3c00);
  CHECK(bits(test::kFloat16, -2) == 0xc000);
  CHECK(bits(test::kFloat16, std::ldexp(1.0, -24)) == 1);
  CHECK(bits(test::kBfloat16, 1) == 0x3f80);
  CHECK(bits(test::kE4m3, 1) == 0x38);
  CHECK(bits(test::kE4m3, 448) == 0x7e);
  CHECK(bits(test::kE5m2, 1) == 0x3c);
  CHECK(bits(test::kE5m2, 57344) == 0x7b);
  CHECK(bits(test::kFloat32, -1.5) == 0xbfc00000);
  CHECK(bits(test::kFloat64, 1) == 0x3ff0000000000000);
  CHECK(bits(test::kInt8, -3) == 0xfd);
}
