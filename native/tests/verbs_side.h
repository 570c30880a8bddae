// Two connected queue pairs of the double of libibverbs, for tests that speak verbs themselves.
#pragma once

#include <fcntl.h>
#include <poll.h>

#include <string>
#include <utility>

#include "verbs_double.h"

namespace dicomm::test {

inline constexpr int kAccess = ibv::access_local_write | ibv::access_remote_write;
inline constexpr int kToInit = ibv::qp_state | ibv::qp_pkey_index | ibv::qp_port | ibv::qp_access_flags;
inline constexpr int kToRtr = ibv::qp_state | ibv::qp_av | ibv::qp_path_mtu | ibv::qp_dest_qpn |
                              ibv::qp_rq_psn | ibv::qp_max_dest_rd_atomic | ibv::qp_min_rnr_timer;
inline constexpr int kToRts = ibv::qp_state | ibv::qp_timeout | ibv::qp_retry_cnt | ibv::qp_rnr_retry |
                              ibv::qp_sq_psn | ibv::qp_max_qp_rd_atomic;

struct Sizes {
  uint32_t sends = 4, receives = 4;
  int completions = 16;
  uint8_t rnr_retry = 7;
};

// One side: everything that one queue pair needs, and 256 registered bytes.
struct Side {
  explicit Side(VerbsDouble &world, const Sizes &sizes = {}) : call(world.library->call), sizes(sizes) {
    int count = 0;
    ibv::Device **list = call.get_device_list(&count);
    REQUIRE(count >= 1);
    context = call.open_device(list[0]);
    call.free_device_list(list);
    pd = call.alloc_pd(context);
    channel = call.create_comp_channel(context);
    REQUIRE(::fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
    REQUIRE(::fcntl(context->async_fd, F_SETFL, O_NONBLOCK) == 0);
    cq = call.create_cq(context, sizes.completions, this, channel, 0);
    ibv::QpInitAttr init{};
    init.send_cq = init.recv_cq = cq;
    init.cap = {sizes.sends, sizes.receives, 2, 2, 16};
    init.qp_type = ibv::qpt_rc;
    qp = call.create_qp(pd, &init);
    REQUIRE(qp != nullptr);
    mr = call.reg_mr(pd, data, sizeof data, kAccess);
    REQUIRE(mr != nullptr);
  }
  ~Side() {
    if (qp != nullptr) CHECK(call.destroy_qp(qp) == 0);
    if (mr != nullptr) CHECK(call.dereg_mr(mr) == 0);
    CHECK(call.destroy_cq(cq) == 0);
    CHECK(call.destroy_comp_channel(channel) == 0);
    CHECK(call.dealloc_pd(pd) == 0);
    CHECK(call.close_device(context) == 0);
  }
  Side(const Side &) = delete;
  Side &operator=(const Side &) = delete;

  int to_init() {
    ibv::QpAttr attr{};
    attr.qp_state = ibv::qps_init;
    attr.port_num = 1;
    attr.qp_access_flags = ibv::access_remote_write;
    return call.modify_qp(qp, &attr, kToInit);
  }
  int to_rtr(uint32_t dest) {
    ibv::QpAttr attr{};
    attr.qp_state = ibv::qps_rtr;
    attr.path_mtu = 5;
    attr.dest_qp_num = dest;
    attr.rq_psn = 7;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid = doubles::ipv4_gid(127, 0, 0, 1);
    attr.ah_attr.grh.sgid_index = 1;
    return call.modify_qp(qp, &attr, kToRtr);
  }
  int to_rts() {
    ibv::QpAttr attr{};
    attr.qp_state = ibv::qps_rts;
    attr.timeout = 14;
    attr.retry_cnt = 7;
    attr.rnr_retry = sizes.rnr_retry;
    attr.sq_psn = 7;
    return call.modify_qp(qp, &attr, kToRts);
  }
  int to(int state) {
    ibv::QpAttr attr{};
    attr.qp_state = state;
    return call.modify_qp(qp, &attr, ibv::qp_state);
  }

  int receive(uint64_t id, uint32_t offset = 0, uint32_t bytes = 0) {
    ibv::Sge sge{reinterpret_cast<uint64_t>(data + offset), bytes, mr->lkey};
    ibv::RecvWr request{id, nullptr, &sge, bytes > 0 ? 1 : 0}, *bad = nullptr;
    return context->ops.post_recv(qp, &request, &bad);
  }
  ibv::SendWr request(uint64_t id, int opcode, unsigned flags = ibv::send_signaled) {
    ibv::SendWr out{};
    out.wr_id = id;
    out.opcode = opcode;
    out.send_flags = flags;
    return out;
  }
  int post(ibv::SendWr request, ibv::Sge sge) {
    ibv::SendWr *bad = nullptr;
    request.sg_list = &sge;
    request.num_sge = 1;
    return context->ops.post_send(qp, &request, &bad);
  }
  ibv::Sge at(uint32_t offset, uint32_t bytes) {
    return {reinterpret_cast<uint64_t>(data + offset), bytes, mr->lkey};
  }
  int send(uint64_t id, uint32_t bytes, unsigned flags = ibv::send_signaled) {
    return post(request(id, ibv::wr_send, flags), at(0, bytes));
  }
  int write(uint64_t id, const Side &to, uint32_t bytes, int opcode = ibv::wr_rdma_write, uint32_t imm = 0) {
    ibv::SendWr one = request(id, opcode);
    one.imm_data = imm;
    one.rdma = {reinterpret_cast<uint64_t>(to.data), to.mr->rkey};
    return post(one, at(0, bytes));
  }

  // One poll for one completion.
  bool poll(ibv::Wc &wc) { return context->ops.poll_cq(cq, 1, &wc) == 1; }
  // All there is, as "id:status", after as many polls as it takes.
  std::string polled() {
    std::string out;
    ibv::Wc wc{};
    for (int idle = 0; idle < 8;) {
      const bool found = poll(wc);
      idle = found ? 0 : idle + 1;
      if (found) out += (out.empty() ? "" : " ") + std::to_string(wc.wr_id) + ":" + std::to_string(wc.status);
    }
    return out;
  }
  bool readable(int fd) {
    pollfd one{fd, POLLIN, 0};
    return ::poll(&one, 1, 0) == 1;
  }
  // The type of the next asynchronous event, or -1.
  int event() {
    ibv::AsyncEvent one{};
    if (call.get_async_event(context, &one) != 0) return -1;
    call.ack_async_event(&one);
    return one.event_type;
  }

  const ibv::Functions &call;
  const Sizes sizes;
  ibv::Context *context = nullptr;
  ibv::Pd *pd = nullptr;
  ibv::CompChannel *channel = nullptr;
  ibv::Cq *cq = nullptr;
  ibv::Qp *qp = nullptr;
  ibv::Mr *mr = nullptr;
  char data[256] = {};
};

struct Connected {
  explicit Connected(VerbsDouble &world, const Sizes &sizes = {}) : a(world, sizes), b(world, sizes) {
    for (auto [side, peer] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
      REQUIRE(side->to_init() == 0);
      REQUIRE(side->to_rtr(peer->qp->qp_num) == 0);
      REQUIRE(side->to_rts() == 0);
    }
  }
  Side a, b;
};

}  // namespace dicomm::test
