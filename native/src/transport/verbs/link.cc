#include "transport/verbs/link.h"

#include <endian.h>
#include <errno.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/sha256.h"

namespace dicomm {

namespace {

constexpr uint32_t kInlineBytes = 128;
constexpr uint8_t kMinRnrTimer = 12;  // 0.64 ms; the frames' window keeps it from being needed
constexpr uint8_t kRnrForEver = 7;
constexpr Nanos kDrain = 200 * kMillisecond;

uint64_t id_of(Work work, uint32_t index) { return uint64_t{static_cast<uint32_t>(work)} << 32 | index; }

}  // namespace

Status VerbsLink::make(const Ports &ports, const std::vector<uint32_t> &rails, const FrameMemory &memory,
                       const VerbsSettings &settings, std::unique_ptr<VerbsLink> &out) {
  std::unique_ptr<VerbsLink> link(new VerbsLink(ports, memory, settings));
  const auto pairs = static_cast<uint32_t>(rails.size());
  const uint32_t frames = 2 * (memory.depth() + FrameMemory::kSpare), payloads = 2 * (kVerbsSlots + 2);
  for (uint32_t port : rails)
    DICOMM_TRY(link->make_queue(port, static_cast<int>(frames + 1 + pairs * (payloads + 2))));
  DICOMM_TRY(link->make_pair(rails[0], memory.depth() + FrameMemory::kSpare, memory.places() + 1));
  for (uint32_t pair = 1; pair < pairs; ++pair)
    DICOMM_TRY(link->make_pair(rails[pair], kVerbsSlots + 2, kVerbsSlots + 2));
  for (uint32_t place = 0; place < memory.places(); ++place)
    if (const int error = link->receive_frame(place); error != 0)
      return Status::from_errno(error, "ibv_post_recv");
  for (uint32_t pair = 1; pair < pairs; ++pair)
    for (uint32_t i = 0; i < kVerbsSlots + 1; ++i)
      if (const int error = link->receive_payload(pair); error != 0)
        return Status::from_errno(error, "ibv_post_recv");
  out = std::move(link);
  return {};
}

Status VerbsLink::make_queue(uint32_t port, int capacity) {
  if (queues_[port] != nullptr) return {};
  const VerbsPort &at = *ports_[port];
  queues_[port] = at.call().create_cq(at.context(), capacity, this, at.channel(), 0);
  if (queues_[port] != nullptr) return {};
  return Status::from_errno(errno, concat("ibv_create_cq of ", capacity, " entries on ", at.describe()));
}

Status VerbsLink::make_pair(uint32_t port, uint32_t sends, uint32_t receives) {
  const VerbsPort &at = *ports_[port];
  ibv::QpInitAttr wanted{};
  wanted.send_cq = wanted.recv_cq = queues_[port];
  wanted.qp_type = ibv::qpt_rc;
  wanted.cap = {sends, receives, 1, 1, kInlineBytes};
  ibv::QpInitAttr granted = wanted;
  ibv::Qp *qp = at.call().create_qp(at.pd(), &granted);
  if (qp == nullptr) {
    granted = wanted;
    granted.cap.max_inline_data = 0;
    qp = at.call().create_qp(at.pd(), &granted);
  }
  if (qp == nullptr) return Status::from_errno(errno, concat("ibv_create_qp on ", at.describe()));
  uint32_t psn = 0;
  random_bytes(std::as_writable_bytes(std::span(&psn, 1)));
  pairs_.push_back({port, qp, psn & 0xffffff});
  inline_bytes_ =
      pairs_.size() == 1 ? granted.cap.max_inline_data : std::min(inline_bytes_, granted.cap.max_inline_data);
  ibv::QpAttr attr{};
  attr.qp_state = ibv::qps_init;
  attr.port_num = at.number();
  attr.pkey_index = settings_.pkey_index;
  attr.qp_access_flags = ibv::access_remote_write;
  const int error = at.call().modify_qp(
      qp, &attr, ibv::qp_state | ibv::qp_pkey_index | ibv::qp_port | ibv::qp_access_flags);
  return error == 0 ? Status()
                    : Status::from_errno(error, concat("ibv_modify_qp to INIT on ", at.describe()));
}

VerbsLink::~VerbsLink() {
  if (!ports_[0]->usable()) return;
  for (const Pair &pair : pairs_) ports_[pair.port]->call().destroy_qp(pair.qp);
  for (size_t i = 0; i < queues_.size(); ++i) {
    if (queues_[i] != nullptr) ports_[i]->call().destroy_cq(queues_[i]);
  }
}

Setup VerbsLink::setup(uint32_t depth) const {
  Setup setup;
  setup.queue_pairs = pairs();
  setup.depth = depth;
  setup.ports = static_cast<uint32_t>(ports_.size());
  for (size_t i = 0; i < ports_.size(); ++i) setup.port[i] = ports_[i]->address();
  for (size_t i = 0; i < pairs_.size(); ++i)
    setup.pair[i] = {pairs_[i].qp->qp_num, pairs_[i].psn, pairs_[i].port};
  return setup;
}

Status VerbsLink::connect(const Setup &peer) {
  for (size_t i = 0; i < pairs_.size(); ++i) {
    const QueuePairAddress &address = peer.pair[i];
    const PortAddress &theirs = peer.port[address.port], &ours = ports_[pairs_[i].port]->address();
    if (theirs.infiniband != ours.infiniband)
      return Status::make(DICOMM_NOT_SUPPORTED, "one side's port is InfiniBand and the other's is Ethernet");
    DICOMM_TRY(connect(pairs_[i], theirs, address, std::min(theirs.mtu, ours.mtu)));
  }
  return {};
}

Status VerbsLink::connect(const Pair &pair, const PortAddress &port, const QueuePairAddress &address,
                          uint8_t mtu) {
  const VerbsPort &at = *ports_[pair.port];
  ibv::QpAttr attr{};
  attr.qp_state = ibv::qps_rtr;
  attr.path_mtu = mtu;
  attr.dest_qp_num = address.number;
  attr.rq_psn = address.psn;
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = kMinRnrTimer;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.grh.dgid = port.gid;
  attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(at.gid_index());
  attr.ah_attr.grh.hop_limit = 255;
  attr.ah_attr.grh.traffic_class = settings_.traffic_class;
  attr.ah_attr.dlid = port.lid;
  attr.ah_attr.sl = settings_.service_level;
  attr.ah_attr.port_num = at.number();
  int error = at.call().modify_qp(pair.qp, &attr,
                                  ibv::qp_state | ibv::qp_av | ibv::qp_path_mtu | ibv::qp_dest_qpn |
                                      ibv::qp_rq_psn | ibv::qp_max_dest_rd_atomic | ibv::qp_min_rnr_timer);
  if (error != 0) return Status::from_errno(error, concat("ibv_modify_qp to RTR on ", at.describe()));
  attr.qp_state = ibv::qps_rts;
  attr.sq_psn = pair.psn;
  attr.timeout = settings_.timeout;
  attr.retry_cnt = settings_.retry_count;
  attr.rnr_retry = kRnrForEver;
  attr.max_rd_atomic = 1;
  error = at.call().modify_qp(pair.qp, &attr,
                              ibv::qp_state | ibv::qp_timeout | ibv::qp_retry_cnt | ibv::qp_rnr_retry |
                                  ibv::qp_sq_psn | ibv::qp_max_qp_rd_atomic);
  return error == 0 ? Status() : Status::from_errno(error, concat("ibv_modify_qp to RTS on ", at.describe()));
}

int VerbsLink::post(uint32_t pair, ibv::SendWr &request) {
  ibv::SendWr *bad = nullptr;
  request.send_flags |= ibv::send_signaled;
  return pairs_[pair].qp->context->ops.post_send(pairs_[pair].qp, &request, &bad);
}

int VerbsLink::send_frame(const std::byte *frame, size_t bytes) {
  ibv::Sge where{reinterpret_cast<uint64_t>(frame), static_cast<uint32_t>(bytes),
                 memory_.lkey(pairs_[0].port)};
  ibv::SendWr request{};
  request.wr_id = id_of(Work::frame, 0);
  request.sg_list = &where;
  request.num_sge = 1;
  request.opcode = ibv::wr_send;
  if (bytes <= inline_bytes_) request.send_flags = ibv::send_inline;
  return post(0, request);
}

int VerbsLink::write(const Grant &grant, const std::byte *data, size_t bytes, uint32_t lkey) {
  ibv::Sge where{reinterpret_cast<uint64_t>(data), static_cast<uint32_t>(bytes), lkey};
  ibv::SendWr request{};
  request.wr_id = id_of(Work::write, grant.slot);
  request.sg_list = &where;
  request.num_sge = 1;
  request.opcode = ibv::wr_rdma_write_with_imm;
  request.imm_data = htobe32(grant.slot);
  request.rdma.remote_addr = grant.address;
  request.rdma.rkey = grant.rkey;
  return post(grant.queue_pair, request);
}

int VerbsLink::probe() {
  for (uint32_t pair = 0; pair < pairs_.size(); ++pair) {
    ibv::SendWr request{};
    request.wr_id = id_of(Work::probe, pair);
    request.opcode = ibv::wr_rdma_write_with_imm;
    request.imm_data = htobe32(kProbe);
    if (const int error = post(pair, request); error != 0) return error;
  }
  return 0;
}

int VerbsLink::post(uint32_t pair, Work work, uint32_t index, ibv::Sge *where) {
  ibv::RecvWr request{id_of(work, index), nullptr, where, where == nullptr ? 0 : 1};
  ibv::RecvWr *bad = nullptr;
  return pairs_[pair].qp->context->ops.post_recv(pairs_[pair].qp, &request, &bad);
}

int VerbsLink::receive_frame(uint32_t place) {
  ibv::Sge where{reinterpret_cast<uint64_t>(memory_.place(place)), kVerbsFrameBytes,
                 memory_.lkey(pairs_[0].port)};
  return post(0, Work::receive, place, &where);
}

int VerbsLink::receive_payload(uint32_t pair) { return post(pair, Work::bulk_receive, pair, nullptr); }

// Devices number their queue pairs each for itself.
uint32_t VerbsLink::pair_of(uint32_t port, uint32_t number) const {
  const auto found = std::find_if(pairs_.begin(), pairs_.end(), [&](const Pair &pair) {
    return pair.port == port && pair.qp->qp_num == number;
  });
  return found == pairs_.end() ? kNoPair : static_cast<uint32_t>(found - pairs_.begin());
}

void VerbsLink::poll(std::deque<Completion> &out) {
  std::array<ibv::Wc, 16> completions;
  for (uint32_t port = 0; port < queues_.size(); ++port) {
    ibv::Cq *const queue = queues_[port];
    if (queue == nullptr) continue;
    for (int n; (n = queue->context->ops.poll_cq(queue, completions.size(), completions.data())) > 0;) {
      for (int i = 0; i < n; ++i) {
        const ibv::Wc &wc = completions[static_cast<size_t>(i)];
        const bool good = wc.status == ibv::wc_success;
        const bool with_slot = good && wc.opcode == ibv::wc_opcode_recv_with_imm;
        out.push_back({static_cast<Work>(wc.wr_id >> 32), static_cast<uint32_t>(wc.wr_id), wc.status,
                       good ? kNoPair : pair_of(port, wc.qp_num), good ? wc.byte_len : 0, with_slot,
                       with_slot ? be32toh(wc.imm_data) : 0});
      }
      if (n < static_cast<int>(completions.size())) break;
    }
  }
}

void VerbsLink::arm() {
  if (std::exchange(armed_, true)) return;
  for (ibv::Cq *const queue : queues_) {
    if (queue != nullptr) queue->context->ops.req_notify_cq(queue, 0);
  }
}

// A receive posted after the change to the error state completes behind all that came before.
void VerbsLink::close(std::deque<Completion> &out) {
  size_t waiting = 0;
  for (uint32_t pair = 0; pair < pairs_.size(); ++pair) {
    ibv::QpAttr attr{};
    attr.qp_state = ibv::qps_err;
    // Of a device that is gone nothing completes any more.
    if (ports_[pairs_[pair].port]->call().modify_qp(pairs_[pair].qp, &attr, ibv::qp_state) != 0) continue;
    waiting += post(pair, Work::drain, pair, nullptr) == 0;
  }
  const Nanos deadline = deadline_after(kDrain);
  for (size_t looked = out.size(); waiting > 0 && now() < deadline;) {
    poll(out);
    for (; looked < out.size(); ++looked) waiting -= out[looked].work == Work::drain;
  }
  poll(out);  // destroying drops what is left
  for (const Pair &pair : pairs_) ports_[pair.port]->call().destroy_qp(pair.qp);
  pairs_.clear();
}

}  // namespace dicomm
