// transport/verbs/abi.h, and what the double adds to it, against rdma-core's own header and library, where
// this machine has them.

#include <doctest/doctest.h>

#include "doubles/verbs_control.h"
#include "signatures.h"
#include "transport/verbs/library.h"

#if __has_include(<infiniband/verbs.h>)
#include <infiniband/verbs.h>
#define DICOMM_VERBS_HEADER 1
#endif

namespace dicomm::test {

namespace {

#ifdef DICOMM_VERBS_HEADER

#define DICOMM_VERBS_LAYOUT(ours, theirs, members) \
  namespace layout_##theirs {                      \
    using Ours = ibv::ours;                        \
    using Theirs = ::theirs;                       \
    static_assert(sizeof(Ours) == sizeof(Theirs)); \
    members                                        \
  }
#define M(member) static_assert(offsetof(Ours, member) == offsetof(Theirs, member), #member);

// clang-format off
DICOMM_VERBS_LAYOUT(Gid, ibv_gid, M(raw))
DICOMM_VERBS_LAYOUT(Operations, ibv_context_ops, M(poll_cq) M(req_notify_cq) M(post_send) M(post_recv))
DICOMM_VERBS_LAYOUT(Context, ibv_context,
  M(device) M(ops) M(cmd_fd) M(async_fd) M(num_comp_vectors) M(mutex) M(abi_compat))
DICOMM_VERBS_LAYOUT(DeviceAttr, ibv_device_attr,
  M(fw_ver) M(node_guid) M(sys_image_guid) M(max_mr_size) M(page_size_cap) M(vendor_id)
  M(vendor_part_id) M(hw_ver) M(max_qp) M(max_qp_wr) M(device_cap_flags) M(max_sge) M(max_sge_rd)
  M(max_cq) M(max_cqe) M(max_mr) M(max_pd) M(max_pkeys) M(local_ca_ack_delay) M(phys_port_cnt))
DICOMM_VERBS_LAYOUT(PortAttr, ibv_port_attr,
  M(state) M(max_mtu) M(active_mtu) M(gid_tbl_len) M(port_cap_flags) M(max_msg_sz) M(bad_pkey_cntr)
  M(qkey_viol_cntr) M(pkey_tbl_len) M(lid) M(sm_lid) M(lmc) M(max_vl_num) M(sm_sl) M(subnet_timeout)
  M(init_type_reply) M(active_width) M(active_speed) M(phys_state) M(link_layer) M(flags)
  M(port_cap_flags2))
DICOMM_VERBS_LAYOUT(GidEntry, ibv_gid_entry, M(gid) M(gid_index) M(port_num) M(gid_type) M(ndev_ifindex))
DICOMM_VERBS_LAYOUT(Pd, ibv_pd, M(context) M(handle))
DICOMM_VERBS_LAYOUT(Mr, ibv_mr, M(context) M(pd) M(addr) M(length) M(handle) M(lkey) M(rkey))
DICOMM_VERBS_LAYOUT(CompChannel, ibv_comp_channel, M(context) M(fd) M(refcnt))
DICOMM_VERBS_LAYOUT(Cq, ibv_cq,
  M(context) M(channel) M(cq_context) M(handle) M(cqe) M(mutex) M(cond) M(comp_events_completed)
  M(async_events_completed))
DICOMM_VERBS_LAYOUT(Qp, ibv_qp,
  M(context) M(qp_context) M(pd) M(send_cq) M(recv_cq) M(srq) M(handle) M(qp_num) M(state) M(qp_type)
  M(mutex) M(cond) M(events_completed))
DICOMM_VERBS_LAYOUT(QpCap, ibv_qp_cap,
  M(max_send_wr) M(max_recv_wr) M(max_send_sge) M(max_recv_sge) M(max_inline_data))
DICOMM_VERBS_LAYOUT(QpInitAttr, ibv_qp_init_attr,
  M(qp_context) M(send_cq) M(recv_cq) M(srq) M(cap) M(qp_type) M(sq_sig_all))
DICOMM_VERBS_LAYOUT(GlobalRoute, ibv_global_route,
  M(dgid) M(flow_label) M(sgid_index) M(hop_limit) M(traffic_class))
DICOMM_VERBS_LAYOUT(AhAttr, ibv_ah_attr,
  M(grh) M(dlid) M(sl) M(src_path_bits) M(static_rate) M(is_global) M(port_num))
DICOMM_VERBS_LAYOUT(QpAttr, ibv_qp_attr,
  M(qp_state) M(cur_qp_state) M(path_mtu) M(path_mig_state) M(qkey) M(rq_psn) M(sq_psn) M(dest_qp_num)
  M(qp_access_flags) M(cap) M(ah_attr) M(alt_ah_attr) M(pkey_index) M(alt_pkey_index)
  M(en_sqd_async_notify) M(sq_draining) M(max_rd_atomic) M(max_dest_rd_atomic) M(min_rnr_timer)
  M(port_num) M(timeout) M(retry_cnt) M(rnr_retry) M(alt_port_num) M(alt_timeout) M(rate_limit))
DICOMM_VERBS_LAYOUT(Sge, ibv_sge, M(addr) M(length) M(lkey))
DICOMM_VERBS_LAYOUT(SendWr, ibv_send_wr,
  M(wr_id) M(next) M(sg_list) M(num_sge) M(opcode) M(send_flags) M(imm_data))
DICOMM_VERBS_LAYOUT(RecvWr, ibv_recv_wr, M(wr_id) M(next) M(sg_list) M(num_sge))
DICOMM_VERBS_LAYOUT(Wc, ibv_wc,
  M(wr_id) M(status) M(opcode) M(vendor_err) M(byte_len) M(imm_data) M(qp_num) M(src_qp) M(wc_flags)
  M(pkey_index) M(slid) M(sl) M(dlid_path_bits))
DICOMM_VERBS_LAYOUT(AsyncEvent, ibv_async_event, M(element) M(event_type))
// clang-format on
static_assert(offsetof(ibv::SendWr, rdma.remote_addr) == offsetof(ibv_send_wr, wr.rdma.remote_addr));
static_assert(offsetof(ibv::SendWr, rdma.rkey) == offsetof(ibv_send_wr, wr.rdma.rkey));

#undef M
#undef DICOMM_VERBS_LAYOUT

#define DICOMM_VERBS_SAME(ours, theirs, value) static_assert(int{ibv::ours} == int{theirs}, #theirs);
DICOMM_IBV_VALUES(DICOMM_VERBS_SAME)
#undef DICOMM_VERBS_SAME
#define DICOMM_VERBS_SAME(ours, theirs, value) static_assert(int{doubles::ours} == int{theirs}, #theirs);
DICOMM_VERBS_DOUBLE_VALUES(DICOMM_VERBS_SAME)
#undef DICOMM_VERBS_SAME

#define DICOMM_VERBS_SAME(name, ...) \
  static_assert(same<decltype(ibv::Functions::name), decltype(&ibv_##name)>);
DICOMM_IBV_FUNCTIONS(DICOMM_VERBS_SAME)
#undef DICOMM_VERBS_SAME
static_assert(same<decltype(ibv::Functions::query_gid_ex), decltype(&_ibv_query_gid_ex)>);
static_assert(same<decltype(ibv::Functions::reg_dmabuf_mr), decltype(&ibv_reg_dmabuf_mr)>);
static_assert(same<decltype(ibv::Operations::poll_cq), decltype(ibv_context_ops::poll_cq)>);
static_assert(same<decltype(ibv::Operations::req_notify_cq), decltype(ibv_context_ops::req_notify_cq)>);
static_assert(same<decltype(ibv::Operations::post_send), decltype(ibv_context_ops::post_send)>);
static_assert(same<decltype(ibv::Operations::post_recv), decltype(ibv_context_ops::post_recv)>);

#endif

TEST_CASE("verbs are declared as in rdma-core's own header") {
#ifdef DICOMM_VERBS_HEADER
  CHECK(sizeof(ibv::Wc) == sizeof(ibv_wc));  // all else was compared by the compiler
#else
  MESSAGE("skipped: this machine has no infiniband/verbs.h (apt-get install libibverbs-dev)");
#endif
}

TEST_CASE("libibverbs itself has every function, where this machine has it") {
  std::shared_ptr<const VerbsLibrary> library;
  const Status status = VerbsLibrary::open("", library);
  if (!status.ok()) {
    CHECK(status.code() == DICOMM_NOT_SUPPORTED);
    CHECK_MESSAGE(status.message().find("lacks") == std::string::npos, status.message());
    MESSAGE("skipped: " << status.message());
    return;
  }
  CHECK(std::string(library->call.wc_status_str(ibv::wc_rnr_retry_exc_err)) == "RNR retry counter exceeded");
  CHECK(library->file.find("ibv_reg_dmabuf_mr") != nullptr);
}

}  // namespace

}  // namespace dicomm::test
