// What the double of libibverbs (ibverbs.cc) lets a test do beyond control.h, and what it has seen. Work
// requests do not move when they are posted: each poll of a completion queue on either side executes a few,
// so that a test sees queues fill and data change under way. Where such a queue is armed its owner sleeps,
// and all moves at once.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "transport/verbs/abi.h"

namespace dicomm::doubles {

// What the double knows of verbs.h beyond abi.h; test_verbs_abi.cc holds it against the header.
#define DICOMM_VERBS_DOUBLE_VALUES(X)                \
  X(wc_loc_len_err, IBV_WC_LOC_LEN_ERR, 1)           \
  X(wc_rem_inv_req_err, IBV_WC_REM_INV_REQ_ERR, 9)   \
  X(wc_opcode_send, IBV_WC_SEND, 0)                  \
  X(wc_opcode_rdma_write, IBV_WC_RDMA_WRITE, 1)      \
  X(wc_with_imm, IBV_WC_WITH_IMM, 1 << 1)            \
  X(qp_cur_state, IBV_QP_CUR_STATE, 1 << 1)          \
  X(event_qp_access_err, IBV_EVENT_QP_ACCESS_ERR, 3) \
  X(port_down, IBV_PORT_DOWN, 1)

#define DICOMM_VERBS_DOUBLE_DEFINE(ours, theirs, value) inline constexpr int ours = value;
DICOMM_VERBS_DOUBLE_VALUES(DICOMM_VERBS_DOUBLE_DEFINE)
#undef DICOMM_VERBS_DOUBLE_DEFINE

struct VerbsGid {
  ibv::Gid gid{};  // all zero: an empty place of the table
  uint32_t type = ibv::gid_type_roce_v2;
  uint32_t interface = 1;  // index of the network interface
};

// fe80::1
inline ibv::Gid link_local_gid() { return {{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}}; }
// ::ffff:a.b.c.d
inline ibv::Gid ipv4_gid(uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
  return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d}};
}

// One device with one port; its name is "double" and its index.
struct VerbsDevice {
  int port_state = ibv::port_active;
  int link_layer = ibv::link_layer_ethernet;
  int max_mtu = 5, active_mtu = 5;  // 4096 bytes
  uint16_t lid = 0;
  std::vector<VerbsGid> gids = {{link_local_gid(), ibv::gid_type_roce_v1, 1},
                                {ipv4_gid(127, 0, 0, 1), ibv::gid_type_roce_v2, 1}};
  int gid_table = 8;  // places; those beyond `gids` are empty
  std::vector<uint16_t> pkeys = {0xffff};
  uint32_t max_message = uint32_t{1} << 30;
  int max_qp_wr = 4096, max_sge = 16, max_cqe = 1 << 16;
  uint32_t max_inline = 256;
  size_t max_registered = std::numeric_limits<size_t>::max();  // bytes in all; more is ENOMEM
  std::function<int(const void *, size_t)> refuse_mr;          // the errno of ibv_reg_mr for a range, or 0
  bool dmabuf = true;         // ibv_reg_dmabuf_mr maps the descriptor; false: EOPNOTSUPP
  bool dmabuf_access = true;  // false: what it mapped cannot be reached, as behind an IOMMU that forbids it
};

struct VerbsSettings {
  std::vector<VerbsDevice> devices{1};  // read at each call, whatever is open
  unsigned eager = 4;                   // work requests executed by one poll ...
  bool jitter = false;                  // ... or from none to `eager`, by chance
  uint32_t seed = 1;                    // of chance: which queue pair is next, and jitter
  bool hold = false;                    // nothing moves
  bool purge = true;                    // destroying a queue pair drops what it left in completion queues

  // After `cut_after` more work requests (of queue pair `cut_qp`, or of any where it is 0) one ends as
  // RETRY_EXC_ERR; negative: none. The receiver gets nothing of it, or half its bytes without a completion,
  // or all of it; its queue pair notices nothing.
  int64_t cut_after = -1;
  uint32_t cut_qp = 0;
  enum { lost, partly, delivered } cut_how = lost;
};

struct VerbsSeen {
  int contexts = 0, pds = 0, mrs = 0, cqs = 0, qps = 0, channels = 0;  // open now
  uint64_t sends = 0, writes = 0, writes_with_imm = 0, inlined = 0;    // executed
  uint64_t bytes = 0;
  uint64_t rnr = 0;     // work requests that found no receive posted
  uint64_t events = 0;  // of completion channels
  // What real hardware answers with silence, a crash or a call that never returns: completion queue overruns,
  // events not acknowledged, contexts closed while in use, path MTUs that differ.
  std::vector<std::string> errors;

  int open() const { return contexts + pds + mrs + cqs + qps + channels; }
};

struct VerbsControl {
  std::mutex mutex;  // of the double; whoever reads or changes these while threads are in it holds it
  VerbsSettings settings;
  VerbsSeen seen;

  // Settings, what was seen and chance as at the start. False, and nothing happens, while something is open.
  virtual bool reset() = 0;
  // Ends `hold`.
  virtual void release() = 0;
  // Changes a port's state, and tells by PORT_ACTIVE or PORT_ERR. (Setting port_state alone is a silent cut.)
  virtual void set_port(size_t device, int state) = 0;
  // Its contexts learn DEVICE_FATAL, queue pairs are in error, and but for destroying every call is EIO.
  virtual void kill_device(size_t device) = 0;
  // The queue pair is in error, and QP_FATAL tells.
  virtual void kill_qp(uint32_t qp_num) = 0;

 protected:
  ~VerbsControl() = default;
};

}  // namespace dicomm::doubles
