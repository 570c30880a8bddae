// The double of libibverbs keeps the rules that the transport's tests rely on.

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "verbs_side.h"

namespace dicomm::test {

namespace {

using doubles::VerbsSettings;

TEST_CASE("verbs double: messages, writes and immediates") {
  VerbsDouble world;
  Connected pair(world);
  Side &a = pair.a, &b = pair.b;
  std::strcpy(a.data, "hello");
  REQUIRE(b.receive(1, 100, 50) == 0);
  REQUIRE(b.receive(2) == 0);
  REQUIRE(a.send(10, 6, ibv::send_inline) == 0);
  std::strcpy(a.data, "world");
  REQUIRE(a.write(11, b, 6, ibv::wr_rdma_write_with_imm, 0x12345678) == 0);
  CHECK(b.data[0] == 0);  // nothing moves before a poll
  CHECK(b.data[100] == 0);

  ibv::Wc wc{};
  REQUIRE(b.poll(wc));
  CHECK(std::string(b.data + 100) == "hello");
  CHECK(wc.wr_id == 1);
  CHECK(wc.status == 0);
  CHECK(wc.opcode == 128);
  CHECK(wc.byte_len == 6);
  CHECK(wc.qp_num == b.qp->qp_num);
  CHECK(wc.src_qp == a.qp->qp_num);
  REQUIRE(b.poll(wc));
  CHECK(std::string(b.data) == "world");
  CHECK(wc.wr_id == 2);
  CHECK(wc.opcode == 129);
  CHECK(wc.byte_len == 6);
  CHECK(wc.imm_data == 0x12345678);
  CHECK(wc.wc_flags == 2);
  REQUIRE(a.poll(wc));
  CHECK(wc.wr_id == 11);  // 10 was not signaled
  CHECK(wc.opcode == 1);
  CHECK(a.polled() == "");
  CHECK(world.control.seen.sends == 1);
  CHECK(world.control.seen.inlined == 1);
  CHECK(world.control.seen.writes_with_imm == 1);
  CHECK(world.control.seen.bytes == 12);
}

TEST_CASE("verbs double: states") {
  VerbsDouble world;
  Side a(world), b(world);
  CHECK(a.receive(1) == EINVAL);
  CHECK(a.to_rtr(b.qp->qp_num) == EINVAL);
  CHECK(a.to_rts() == EINVAL);
  CHECK(a.to(ibv::qps_init) == EINVAL);  // without what INIT needs
  CHECK(a.to_init() == 0);
  CHECK(a.receive(1) == 0);
  CHECK(a.send(2, 1) == EINVAL);
  CHECK(a.to_rtr(b.qp->qp_num) == 0);
  CHECK(a.send(2, 1) == EINVAL);
  CHECK(a.to_rts() == 0);
  CHECK(a.send(2, 1) == 0);
  CHECK(a.send(3, 1) == 0);
  CHECK(a.polled() == "2:12 3:5 1:5");
}

TEST_CASE("verbs double: an error flushes what is posted, and what is posted later") {
  VerbsDouble world;
  Connected pair(world);
  Side &a = pair.a;
  REQUIRE(a.receive(1) == 0);
  REQUIRE(a.receive(2) == 0);
  REQUIRE(a.send(3, 1, 0) == 0);
  REQUIRE(a.to(ibv::qps_err) == 0);
  REQUIRE(a.send(4, 1, 0) == 0);
  REQUIRE(a.receive(5) == 0);
  CHECK(a.polled() == "3:5 1:5 2:5 4:5 5:5");
  REQUIRE(pair.b.send(6, 1) == 0);
  CHECK(pair.b.polled() == "6:12");
  CHECK(a.to(ibv::qps_reset) == 0);
  CHECK(a.to_init() == 0);
}

TEST_CASE("verbs double: a send without a receive waits, or fails") {
  VerbsDouble world;
  {
    Connected pair(world);
    REQUIRE(pair.a.send(1, 3) == 0);
    CHECK(pair.a.polled() == "");
    REQUIRE(pair.b.receive(2, 0, 10) == 0);
    CHECK(pair.a.polled() == "1:0");
    CHECK(pair.b.polled() == "2:0");
  }
  Connected pair(world, {.rnr_retry = 3});
  REQUIRE(pair.a.send(1, 3) == 0);
  REQUIRE(pair.a.send(2, 3, 0) == 0);
  CHECK(pair.a.polled() == "1:13 2:5");
  CHECK(pair.b.polled() == "");
  CHECK(world.control.seen.rnr == 2);
}

TEST_CASE("verbs double: keys and lengths are checked") {
  VerbsDouble world;
  SUBCASE("a local key that is not registered") {
    Connected pair(world);
    ibv::Sge sge = pair.a.at(0, 8);
    sge.lkey += 1000;
    REQUIRE(pair.a.post(pair.a.request(1, ibv::wr_send), sge) == 0);
    CHECK(pair.a.polled() == "1:4");
  }
  SUBCASE("beyond a region") {
    Connected pair(world);
    REQUIRE(pair.a.post(pair.a.request(1, ibv::wr_send), pair.a.at(250, 7)) == 0);
    CHECK(pair.a.polled() == "1:4");
  }
  SUBCASE("a remote key that is gone") {
    Connected pair(world);
    REQUIRE(pair.b.receive(7) == 0);
    REQUIRE(pair.a.write(1, pair.b, 8) == 0);
    CHECK(pair.b.call.dereg_mr(pair.b.mr) == 0);
    pair.b.mr = nullptr;
    CHECK(pair.a.polled() == "1:10");
    CHECK(pair.b.polled() == "7:5");
    CHECK(pair.b.event() == 3);
    CHECK(pair.b.event() == -1);
  }
  SUBCASE("a region that may not be written") {
    Connected pair(world);
    CHECK(pair.b.call.dereg_mr(pair.b.mr) == 0);
    pair.b.mr = pair.b.call.reg_mr(pair.b.pd, pair.b.data, 256, ibv::access_local_write);
    REQUIRE(pair.a.write(1, pair.b, 8) == 0);
    CHECK(pair.a.polled() == "1:10");
  }
  SUBCASE("a receive that is too short") {
    Connected pair(world);
    REQUIRE(pair.b.receive(2, 0, 7) == 0);
    REQUIRE(pair.b.receive(3) == 0);
    REQUIRE(pair.a.send(1, 8) == 0);
    CHECK(pair.a.polled() == "1:9");
    CHECK(pair.b.polled() == "2:1 3:5");
  }
}

TEST_CASE("verbs double: queues fill, and empty by polling") {
  VerbsDouble world;
  Connected pair(world, {.sends = 2, .receives = 3, .completions = 4});
  Side &a = pair.a, &b = pair.b;
  for (uint64_t id = 1; id <= 3; ++id) REQUIRE(b.receive(id) == 0);
  CHECK(b.receive(4) == ENOMEM);
  REQUIRE(a.send(1, 0, 0) == 0);
  REQUIRE(a.send(2, 0) == 0);
  CHECK(a.send(3, 0) == ENOMEM);
  CHECK(b.polled() == "1:0 2:0");
  CHECK(a.send(3, 0) == ENOMEM);  // done, but not polled
  CHECK(b.receive(4) == 0);
  CHECK(b.receive(5) == 0);
  CHECK(b.receive(6) == ENOMEM);
  CHECK(a.polled() == "2:0");
  CHECK(a.send(3, 0, 0) == 0);
  CHECK(a.send(4, 0, 0) == 0);
  CHECK(b.polled() == "3:0 4:0");
  CHECK(a.polled() == "");
  CHECK(a.send(5, 0) == ENOMEM);  // nothing signaled: never free again
}

TEST_CASE("verbs double: a completion queue that overflows is an error") {
  VerbsDouble world;
  Connected pair(world, {.receives = 3, .completions = 2});
  for (uint64_t id = 1; id <= 3; ++id) REQUIRE(pair.b.receive(id) == 0);
  REQUIRE(pair.b.to(ibv::qps_err) == 0);
  CHECK(pair.b.polled() == "1:5 2:5");
  CHECK(world.control.seen.errors == std::vector<std::string>{"completion queue overrun"});
  world.control.seen.errors.clear();
}

TEST_CASE("verbs double: one event for each arming") {
  VerbsDouble world;
  Connected pair(world);
  Side &a = pair.a, &b = pair.b;
  for (uint64_t id = 1; id <= 4; ++id) REQUIRE(b.receive(id, 0, 8) == 0);
  ibv::Cq *cq = nullptr;
  void *user = nullptr;
  CHECK(b.call.get_cq_event(b.channel, &cq, &user) == -1);
  CHECK(errno == EAGAIN);

  REQUIRE(a.send(1, 8) == 0);
  ibv::Wc wc{};
  REQUIRE(a.poll(wc));
  REQUIRE(b.context->ops.req_notify_cq(b.cq, 0) == 0);
  CHECK_FALSE(b.readable(b.channel->fd));  // completed before arming
  REQUIRE(a.send(2, 8) == 0);              // its receiver sleeps: it moves at once
  CHECK(b.readable(b.channel->fd));
  REQUIRE(a.send(3, 8) == 0);
  CHECK(world.control.seen.events == 1);
  REQUIRE(b.call.get_cq_event(b.channel, &cq, &user) == 0);
  CHECK(cq == b.cq);
  CHECK(user == &b);
  CHECK_FALSE(b.readable(b.channel->fd));
  b.call.ack_cq_events(cq, 1);
  CHECK(b.polled() == "1:0 2:0 3:0");

  REQUIRE(a.send(4, 8) == 0);  // nobody sleeps yet
  CHECK_FALSE(b.readable(b.channel->fd));
  REQUIRE(b.context->ops.req_notify_cq(b.cq, 0) == 0);
  CHECK(b.readable(b.channel->fd));  // left for cq's end: it is withdrawn
}

// Each side sleeps whenever it has nothing to do: an arming that missed its completion would end in the
// time-out.
TEST_CASE("verbs double: two threads that sleep between messages") {
  VerbsDouble world;
  world.control.settings.jitter = true;
  Connected pair(world);
  constexpr uint64_t kRounds = 2000;
  const auto play = [&](Side &side, uint64_t first) {
    uint64_t received = 0, sent = 0;
    for (uint64_t i = 0; i < 4; ++i) side.receive(i, 0, 8);
    if (first == 0) side.send(sent++, 8);
    while (received < kRounds) {
      ibv::Wc wc{};
      bool found = side.poll(wc);
      if (!found) {
        side.context->ops.req_notify_cq(side.cq, 0);
        found = side.poll(wc);
      }
      if (!found) {
        pollfd one{side.channel->fd, POLLIN, 0};
        if (::poll(&one, 1, 5000) != 1) return received;
        ibv::Cq *cq = nullptr;
        void *user = nullptr;
        if (side.call.get_cq_event(side.channel, &cq, &user) == 0) side.call.ack_cq_events(cq, 1);
        continue;
      }
      if (wc.status != ibv::wc_success) return received;
      if (wc.opcode != ibv::wc_opcode_recv) continue;
      ++received;
      side.receive(wc.wr_id, 0, 8);
      if (sent < kRounds) side.send(sent++, 8);
    }
    return received;
  };
  uint64_t of_b = 0;
  std::thread other([&] { of_b = play(pair.b, 1); });
  CHECK(play(pair.a, 0) == kRounds);
  other.join();
  CHECK(of_b == kRounds);
  CHECK(world.control.seen.sends == 2 * kRounds);
  CHECK(world.control.seen.events > 0);
}

TEST_CASE("verbs double: events that nobody acknowledged are an error") {
  VerbsDouble world;
  {
    Connected pair(world);
    REQUIRE(pair.b.receive(1, 0, 8) == 0);
    REQUIRE(pair.b.context->ops.req_notify_cq(pair.b.cq, 0) == 0);
    REQUIRE(pair.a.send(1, 8) == 0);
    ibv::Cq *cq = nullptr;
    void *user = nullptr;
    REQUIRE(pair.b.call.get_cq_event(pair.b.channel, &cq, &user) == 0);
  }
  REQUIRE(world.control.seen.errors.size() == 1);
  CHECK(world.control.seen.errors[0] == "completion queue destroyed with events not acknowledged");
  world.control.seen.errors.clear();
}

TEST_CASE("verbs double: a cut") {
  VerbsDouble world;
  Connected pair(world);
  Side &a = pair.a, &b = pair.b;
  std::memset(a.data, 'x', 8);
  for (uint64_t id = 1; id <= 3; ++id) REQUIRE(b.receive(id) == 0);
  world.control.settings.cut_after = 1;
  const auto run = [&](auto how) {
    world.control.settings.cut_how = how;
    REQUIRE(a.send(1, 0) == 0);
    REQUIRE(a.write(2, b, 8, ibv::wr_rdma_write_with_imm) == 0);
    REQUIRE(a.send(3, 0) == 0);
    CHECK(a.polled() == "1:0 2:12 3:5");
    CHECK(a.send(4, 0) == 0);
    CHECK(a.polled() == "4:5");
  };
  SUBCASE("lost") {
    run(VerbsSettings::lost);
    CHECK(b.polled() == "1:0");
    CHECK(std::string(b.data) == "");
  }
  SUBCASE("partly") {
    run(VerbsSettings::partly);
    CHECK(b.polled() == "1:0");
    CHECK(std::string(b.data) == "xxxx");
  }
  SUBCASE("delivered") {
    run(VerbsSettings::delivered);
    CHECK(b.polled() == "1:0 2:0");
    CHECK(std::string(b.data) == "xxxxxxxx");
  }
  CHECK(b.event() == -1);
  CHECK(b.send(9, 0) == 0);  // it learns when it sends
  CHECK(b.polled().substr(0, 4) == "9:12");
}

TEST_CASE("verbs double: work that is held, and a device that dies") {
  VerbsDouble world;
  Connected pair(world);
  Side &a = pair.a, &b = pair.b;
  REQUIRE(b.receive(1) == 0);
  world.control.settings.hold = true;
  REQUIRE(b.context->ops.req_notify_cq(b.cq, 0) == 0);
  REQUIRE(a.send(2, 0) == 0);
  CHECK(a.polled() == "");
  CHECK_FALSE(b.readable(b.channel->fd));
  world.control.release();
  CHECK(b.readable(b.channel->fd));
  CHECK(b.polled() == "1:0");
  CHECK(a.polled() == "2:0");

  world.control.set_port(0, doubles::port_down);
  CHECK(a.readable(a.context->async_fd));
  CHECK(a.event() == 10);
  ibv::PortAttr port{};
  REQUIRE(a.call.query_port(a.context, 1, &port) == 0);
  CHECK(port.state == 1);
  world.control.set_port(0, ibv::port_active);
  CHECK(a.event() == 9);
  world.control.kill_qp(a.qp->qp_num);
  CHECK(a.event() == 1);
  REQUIRE(b.receive(3) == 0);
  world.control.kill_device(0);
  CHECK(b.event() == 10);
  CHECK(b.event() == 9);
  CHECK(b.event() == 8);
  CHECK(b.polled() == "3:5");
  CHECK(a.call.reg_mr(a.pd, a.data, 8, 0) == nullptr);
  CHECK(errno == EIO);
}

TEST_CASE("verbs double: what both sides must agree on") {
  VerbsDouble world;
  Connected pair(world);
  Side &a = pair.a;
  REQUIRE(pair.b.receive(1) == 0);
  SUBCASE("a link that is down") { world.control.settings.devices[0].port_state = doubles::port_down; }
  SUBCASE("an address that is another's") {
    world.control.settings.devices[0].gids[1].gid = doubles::ipv4_gid(10, 0, 0, 1);
  }
  SUBCASE("a peer that is gone") {
    CHECK(pair.b.call.destroy_qp(pair.b.qp) == 0);
    pair.b.qp = nullptr;
  }
  REQUIRE(a.send(2, 0) == 0);
  CHECK(a.polled() == "2:12");
}

TEST_CASE("verbs double: devices as set up, and failures as programmed") {
  VerbsDouble world;
  auto &devices = world.control.settings.devices;
  devices.resize(2);
  devices[1].link_layer = ibv::link_layer_infiniband;
  devices[1].lid = 5;
  devices[1].max_registered = 1000;
  const ibv::Functions &call = world.library->call;
  int count = 0;
  ibv::Device **list = call.get_device_list(&count);
  REQUIRE(count == 2);
  CHECK(std::string(call.get_device_name(list[1])) == "double1");
  CHECK(list[2] == nullptr);
  ibv::Context *context = call.open_device(list[1]);
  call.free_device_list(list);
  ibv::PortAttr port{};
  REQUIRE(call.query_port(context, 1, &port) == 0);
  CHECK(port.link_layer == 1);
  CHECK(port.lid == 5);
  CHECK(port.state == 4);
  CHECK(call.query_port(context, 2, &port) == EINVAL);
  ibv::GidEntry gid{};
  REQUIRE(call.query_gid_ex(context, 1, 1, &gid, 0, sizeof gid) == 0);
  CHECK(gid.gid_type == 2);
  CHECK(gid.gid.raw[10] == 0xff);
  CHECK(gid.gid.raw[12] == 127);
  CHECK(call.query_gid_ex(context, 1, 2, &gid, 0, sizeof gid) == ENODATA);
  CHECK(call.query_gid_ex(context, 1, 8, &gid, 0, sizeof gid) == EINVAL);
  uint16_t pkey = 0;
  CHECK(call.query_pkey(context, 1, 0, &pkey) == 0);
  CHECK(pkey == 0xffff);
  CHECK(call.query_pkey(context, 1, 1, &pkey) == -1);

  ibv::Pd *pd = call.alloc_pd(context);
  char data[2000];
  world.calls.results["reg_mr"] = EFAULT;
  CHECK(call.reg_mr(pd, data, 10, 0) == nullptr);
  CHECK(errno == EFAULT);
  CHECK(call.reg_mr(pd, data, 1001, 0) == nullptr);
  CHECK(errno == ENOMEM);
  CHECK(call.reg_mr(pd, data, 10, ibv::access_remote_write) == nullptr);
  CHECK(errno == EINVAL);
  ibv::Mr *mr = call.reg_mr(pd, data, 1000, kAccess);
  REQUIRE(mr != nullptr);
  CHECK(call.dealloc_pd(pd) == EBUSY);
  CHECK(world.control.seen.mrs == 1);
  CHECK(call.dereg_mr(mr) == 0);
  CHECK(call.dealloc_pd(pd) == 0);
  CHECK(call.close_device(context) == 0);
}

TEST_CASE("verbs double: a dma-buf is memory of its own") {
  VerbsDouble world;
  Connected pair(world);
  Side &a = pair.a, &b = pair.b;
  const int fd = ::memfd_create("dicomm-verbs-double", MFD_CLOEXEC);
  REQUIRE(::ftruncate(fd, 8192) == 0);
  world.control.settings.devices[0].dmabuf = false;
  CHECK(b.call.reg_dmabuf_mr(b.pd, 100, 64, 0x1000, fd, kAccess) == nullptr);
  CHECK(errno == EOPNOTSUPP);
  world.control.settings.devices[0].dmabuf = true;
  ibv::Mr *mr = b.call.reg_dmabuf_mr(b.pd, 100, 64, 0x1000, fd, kAccess);
  REQUIRE(mr != nullptr);
  std::strcpy(a.data, "device");
  ibv::SendWr write = a.request(1, ibv::wr_rdma_write);
  write.rdma = {0x1010, mr->rkey};
  REQUIRE(a.post(write, a.at(0, 7)) == 0);
  CHECK(a.polled() == "1:0");
  char found[7] = {};
  CHECK(::pread(fd, found, sizeof found, 116) == 7);
  CHECK(std::string(found) == "device");
  CHECK(b.call.dereg_mr(mr) == 0);
  ::close(fd);
}

}  // namespace

}  // namespace dicomm::test
