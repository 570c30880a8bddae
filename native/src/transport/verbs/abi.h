// What of libibverbs this transport uses, as rdma-core's infiniband/verbs.h (version 32 and later) declares
// it: layouts, values and functions. Members that only the library and its drivers read are kept for their
// place.
//
// native/tests/test_verbs_abi.cc holds this file against that header where it is installed.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <cstdint>

namespace dicomm::ibv {

union Gid {
  uint8_t raw[16];
  uint64_t words[2];
};

struct Device;
struct Pd;
struct CompChannel;
struct Cq;
struct Qp;
struct Wc;
struct SendWr;
struct RecvWr;

// The functions that verbs.h calls through the context instead of exporting them stand by name, the rest as
// `other`.
struct Operations {
  void *other_0[11];
  int (*poll_cq)(Cq *, int entries, Wc *);
  int (*req_notify_cq)(Cq *, int solicited_only);
  void *other_1[12];
  int (*post_send)(Qp *, SendWr *, SendWr **bad);
  int (*post_recv)(Qp *, RecvWr *, RecvWr **bad);
  void *other_2[5];
};

struct Context {
  Device *device;
  Operations ops;
  int cmd_fd;
  int async_fd;
  int num_comp_vectors;
  pthread_mutex_t mutex;
  void *abi_compat;
};

struct DeviceAttr {
  char fw_ver[64];
  uint64_t node_guid;
  uint64_t sys_image_guid;
  uint64_t max_mr_size;
  uint64_t page_size_cap;
  uint32_t vendor_id;
  uint32_t vendor_part_id;
  uint32_t hw_ver;
  int max_qp;
  int max_qp_wr;
  unsigned device_cap_flags;
  int max_sge;
  int max_sge_rd;
  int max_cq;
  int max_cqe;
  int max_mr;
  int max_pd;
  int other[20];
  uint16_t max_pkeys;
  uint8_t local_ca_ack_delay;
  uint8_t phys_port_cnt;
};

struct PortAttr {
  int state;
  int max_mtu;
  int active_mtu;
  int gid_tbl_len;
  uint32_t port_cap_flags;
  uint32_t max_msg_sz;
  uint32_t bad_pkey_cntr;
  uint32_t qkey_viol_cntr;
  uint16_t pkey_tbl_len;
  uint16_t lid;
  uint16_t sm_lid;
  uint8_t lmc;
  uint8_t max_vl_num;
  uint8_t sm_sl;
  uint8_t subnet_timeout;
  uint8_t init_type_reply;
  uint8_t active_width;
  uint8_t active_speed;
  uint8_t phys_state;
  uint8_t link_layer;
  uint8_t flags;
  uint16_t port_cap_flags2;
};

struct GidEntry {
  Gid gid;
  uint32_t gid_index;
  uint32_t port_num;
  uint32_t gid_type;
  uint32_t ndev_ifindex;
};

struct Pd {
  Context *context;
  uint32_t handle;
};

struct Mr {
  Context *context;
  Pd *pd;
  void *addr;
  size_t length;
  uint32_t handle;
  uint32_t lkey;
  uint32_t rkey;
};

struct CompChannel {
  Context *context;
  int fd;
  int refcnt;
};

struct Cq {
  Context *context;
  CompChannel *channel;
  void *cq_context;
  uint32_t handle;
  int cqe;
  pthread_mutex_t mutex;
  pthread_cond_t cond;
  uint32_t comp_events_completed;
  uint32_t async_events_completed;
};

struct Qp {
  Context *context;
  void *qp_context;
  Pd *pd;
  Cq *send_cq;
  Cq *recv_cq;
  void *srq;
  uint32_t handle;
  uint32_t qp_num;
  int state;
  int qp_type;
  pthread_mutex_t mutex;
  pthread_cond_t cond;
  uint32_t events_completed;
};

struct QpCap {
  uint32_t max_send_wr;
  uint32_t max_recv_wr;
  uint32_t max_send_sge;
  uint32_t max_recv_sge;
  uint32_t max_inline_data;
};

struct QpInitAttr {
  void *qp_context;
  Cq *send_cq;
  Cq *recv_cq;
  void *srq;
  QpCap cap;
  int qp_type;
  int sq_sig_all;
};

struct GlobalRoute {
  Gid dgid;
  uint32_t flow_label;
  uint8_t sgid_index;
  uint8_t hop_limit;
  uint8_t traffic_class;
};

struct AhAttr {
  GlobalRoute grh;
  uint16_t dlid;
  uint8_t sl;
  uint8_t src_path_bits;
  uint8_t static_rate;
  uint8_t is_global;
  uint8_t port_num;
};

struct QpAttr {
  int qp_state;
  int cur_qp_state;
  int path_mtu;
  int path_mig_state;
  uint32_t qkey;
  uint32_t rq_psn;
  uint32_t sq_psn;
  uint32_t dest_qp_num;
  unsigned qp_access_flags;
  QpCap cap;
  AhAttr ah_attr;
  AhAttr alt_ah_attr;
  uint16_t pkey_index;
  uint16_t alt_pkey_index;
  uint8_t en_sqd_async_notify;
  uint8_t sq_draining;
  uint8_t max_rd_atomic;
  uint8_t max_dest_rd_atomic;
  uint8_t min_rnr_timer;
  uint8_t port_num;
  uint8_t timeout;
  uint8_t retry_cnt;
  uint8_t rnr_retry;
  uint8_t alt_port_num;
  uint8_t alt_timeout;
  uint32_t rate_limit;
};

struct Sge {
  uint64_t addr;
  uint32_t length;
  uint32_t lkey;
};

struct SendWr {
  uint64_t wr_id;
  SendWr *next;
  Sge *sg_list;
  int num_sge;
  int opcode;
  unsigned send_flags;
  uint32_t imm_data;  // big endian
  struct {
    uint64_t remote_addr;
    uint32_t rkey;
  } rdma;
  uint64_t other[9];
};

struct RecvWr {
  uint64_t wr_id;
  RecvWr *next;
  Sge *sg_list;
  int num_sge;
};

struct Wc {
  uint64_t wr_id;
  int status;
  int opcode;
  uint32_t vendor_err;
  uint32_t byte_len;
  uint32_t imm_data;  // big endian
  uint32_t qp_num;
  uint32_t src_qp;
  unsigned wc_flags;
  uint16_t pkey_index;
  uint16_t slid;
  uint8_t sl;
  uint8_t dlid_path_bits;
};

struct AsyncEvent {
  union {
    Cq *cq;
    Qp *qp;
    int port_num;
    void *other;
  } element;
  int event_type;
};

// X(our name, the header's name, value)
#define DICOMM_IBV_VALUES(X)                                   \
  X(port_active, IBV_PORT_ACTIVE, 4)                           \
  X(link_layer_infiniband, IBV_LINK_LAYER_INFINIBAND, 1)       \
  X(link_layer_ethernet, IBV_LINK_LAYER_ETHERNET, 2)           \
  X(gid_type_ib, IBV_GID_TYPE_IB, 0)                           \
  X(gid_type_roce_v1, IBV_GID_TYPE_ROCE_V1, 1)                 \
  X(gid_type_roce_v2, IBV_GID_TYPE_ROCE_V2, 2)                 \
  X(access_local_write, IBV_ACCESS_LOCAL_WRITE, 1)             \
  X(access_remote_write, IBV_ACCESS_REMOTE_WRITE, 2)           \
  X(qpt_rc, IBV_QPT_RC, 2)                                     \
  X(qps_reset, IBV_QPS_RESET, 0)                               \
  X(qps_init, IBV_QPS_INIT, 1)                                 \
  X(qps_rtr, IBV_QPS_RTR, 2)                                   \
  X(qps_rts, IBV_QPS_RTS, 3)                                   \
  X(qps_err, IBV_QPS_ERR, 6)                                   \
  X(qp_state, IBV_QP_STATE, 1 << 0)                            \
  X(qp_access_flags, IBV_QP_ACCESS_FLAGS, 1 << 3)              \
  X(qp_pkey_index, IBV_QP_PKEY_INDEX, 1 << 4)                  \
  X(qp_port, IBV_QP_PORT, 1 << 5)                              \
  X(qp_av, IBV_QP_AV, 1 << 7)                                  \
  X(qp_path_mtu, IBV_QP_PATH_MTU, 1 << 8)                      \
  X(qp_timeout, IBV_QP_TIMEOUT, 1 << 9)                        \
  X(qp_retry_cnt, IBV_QP_RETRY_CNT, 1 << 10)                   \
  X(qp_rnr_retry, IBV_QP_RNR_RETRY, 1 << 11)                   \
  X(qp_rq_psn, IBV_QP_RQ_PSN, 1 << 12)                         \
  X(qp_max_qp_rd_atomic, IBV_QP_MAX_QP_RD_ATOMIC, 1 << 13)     \
  X(qp_min_rnr_timer, IBV_QP_MIN_RNR_TIMER, 1 << 15)           \
  X(qp_sq_psn, IBV_QP_SQ_PSN, 1 << 16)                         \
  X(qp_max_dest_rd_atomic, IBV_QP_MAX_DEST_RD_ATOMIC, 1 << 17) \
  X(qp_dest_qpn, IBV_QP_DEST_QPN, 1 << 20)                     \
  X(wr_rdma_write, IBV_WR_RDMA_WRITE, 0)                       \
  X(wr_rdma_write_with_imm, IBV_WR_RDMA_WRITE_WITH_IMM, 1)     \
  X(wr_send, IBV_WR_SEND, 2)                                   \
  X(send_signaled, IBV_SEND_SIGNALED, 1 << 1)                  \
  X(send_inline, IBV_SEND_INLINE, 1 << 3)                      \
  X(wc_success, IBV_WC_SUCCESS, 0)                             \
  X(wc_loc_qp_op_err, IBV_WC_LOC_QP_OP_ERR, 2)                 \
  X(wc_loc_prot_err, IBV_WC_LOC_PROT_ERR, 4)                   \
  X(wc_wr_flush_err, IBV_WC_WR_FLUSH_ERR, 5)                   \
  X(wc_loc_access_err, IBV_WC_LOC_ACCESS_ERR, 8)               \
  X(wc_rem_access_err, IBV_WC_REM_ACCESS_ERR, 10)              \
  X(wc_rem_op_err, IBV_WC_REM_OP_ERR, 11)                      \
  X(wc_retry_exc_err, IBV_WC_RETRY_EXC_ERR, 12)                \
  X(wc_rnr_retry_exc_err, IBV_WC_RNR_RETRY_EXC_ERR, 13)        \
  X(wc_opcode_recv, IBV_WC_RECV, 128)                          \
  X(wc_opcode_recv_with_imm, IBV_WC_RECV_RDMA_WITH_IMM, 129)   \
  X(event_qp_fatal, IBV_EVENT_QP_FATAL, 1)                     \
  X(event_device_fatal, IBV_EVENT_DEVICE_FATAL, 8)             \
  X(event_port_active, IBV_EVENT_PORT_ACTIVE, 9)               \
  X(event_port_err, IBV_EVENT_PORT_ERR, 10)

enum Values : int {
#define DICOMM_IBV_ENUMERATE(ours, theirs, value) ours = value,
  DICOMM_IBV_VALUES(DICOMM_IBV_ENUMERATE)
#undef DICOMM_IBV_ENUMERATE
};

// X(name behind "ibv_", result, parameters): what is loaded. All are needed but reg_dmabuf_mr (rdma-core 34).
#define DICOMM_IBV_FUNCTIONS(X)                                                      \
  X(get_device_list, Device **, (int *count))                                        \
  X(free_device_list, void, (Device **))                                             \
  X(get_device_name, const char *, (Device *))                                       \
  X(open_device, Context *, (Device *))                                              \
  X(close_device, int, (Context *))                                                  \
  X(query_device, int, (Context *, DeviceAttr *))                                    \
  X(query_port, int, (Context *, uint8_t port, PortAttr *))                          \
  X(query_pkey, int, (Context *, uint8_t port, int index, uint16_t *pkey))           \
  X(alloc_pd, Pd *, (Context *))                                                     \
  X(dealloc_pd, int, (Pd *))                                                         \
  X(reg_mr, Mr *, (Pd *, void *address, size_t bytes, int access))                   \
  X(dereg_mr, int, (Mr *))                                                           \
  X(create_comp_channel, CompChannel *, (Context *))                                 \
  X(destroy_comp_channel, int, (CompChannel *))                                      \
  X(create_cq, Cq *, (Context *, int cqe, void *context, CompChannel *, int vector)) \
  X(destroy_cq, int, (Cq *))                                                         \
  X(get_cq_event, int, (CompChannel *, Cq **, void **context))                       \
  X(ack_cq_events, void, (Cq *, unsigned count))                                     \
  X(create_qp, Qp *, (Pd *, QpInitAttr *))                                           \
  X(modify_qp, int, (Qp *, QpAttr *, int mask))                                      \
  X(destroy_qp, int, (Qp *))                                                         \
  X(get_async_event, int, (Context *, AsyncEvent *))                                 \
  X(ack_async_event, void, (AsyncEvent *))                                           \
  X(wc_status_str, const char *, (int status))

struct Functions {
#define DICOMM_IBV_MEMBER(name, result, parameters) result(*name) parameters = nullptr;
  DICOMM_IBV_FUNCTIONS(DICOMM_IBV_MEMBER)
#undef DICOMM_IBV_MEMBER
  // The header's ibv_query_gid_ex is an inline around this symbol, "_ibv_query_gid_ex".
  int (*query_gid_ex)(Context *, uint32_t port, uint32_t index, GidEntry *, uint32_t flags,
                      size_t entry_size) = nullptr;
  // Null before rdma-core 34.
  Mr *(*reg_dmabuf_mr)(Pd *, uint64_t offset, size_t bytes, uint64_t iova, int fd, int access) = nullptr;
};

}  // namespace dicomm::ibv
