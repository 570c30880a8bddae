// Which changes of a reliable connection's queue pair the double of libibverbs accepts: the InfiniBand
// specification's table, as the kernel applies it.
#pragma once

#include <cerrno>

#include "doubles/verbs_objects.h"

namespace dicomm::doubles {

inline bool of_qp(const ibv::AsyncEvent &event) {
  return event.event_type == ibv::event_qp_fatal || event.event_type == event_qp_access_err;
}

// Null: an empty place.
inline const VerbsGid *gid_at(const VerbsDevice &device, size_t index) {
  if (index >= device.gids.size()) return nullptr;
  const VerbsGid &gid = device.gids[index];
  return gid.gid.words[0] == 0 && gid.gid.words[1] == 0 ? nullptr : &gid;
}

inline int refuse_creation(const VerbsDevice &device, const ibv::Pd &pd, const ibv::QpInitAttr &init) {
  if (init.qp_type != ibv::qpt_rc || init.srq != nullptr) return EOPNOTSUPP;
  if (init.send_cq == nullptr || init.recv_cq == nullptr) return EINVAL;
  if (init.send_cq->context != pd.context || init.recv_cq->context != pd.context) return EINVAL;
  const uint32_t max_wr = static_cast<uint32_t>(device.max_qp_wr),
                 max_sge = static_cast<uint32_t>(device.max_sge);
  const ibv::QpCap &cap = init.cap;
  if (cap.max_send_wr > max_wr || cap.max_recv_wr > max_wr) return EINVAL;
  if (cap.max_send_sge > max_sge || cap.max_recv_sge > max_sge) return EINVAL;
  return cap.max_inline_data > device.max_inline ? EINVAL : 0;
}

struct Transition {
  int from, to, needed, allowed;
};

inline constexpr Transition kTransitions[] = {
    {ibv::qps_reset, ibv::qps_init, ibv::qp_pkey_index | ibv::qp_port | ibv::qp_access_flags, 0},
    {ibv::qps_init, ibv::qps_init, 0, ibv::qp_pkey_index | ibv::qp_port | ibv::qp_access_flags},
    {ibv::qps_init, ibv::qps_rtr,
     ibv::qp_av | ibv::qp_path_mtu | ibv::qp_dest_qpn | ibv::qp_rq_psn | ibv::qp_max_dest_rd_atomic |
         ibv::qp_min_rnr_timer,
     ibv::qp_pkey_index | ibv::qp_access_flags},
    {ibv::qps_rtr, ibv::qps_rts,
     ibv::qp_timeout | ibv::qp_retry_cnt | ibv::qp_rnr_retry | ibv::qp_sq_psn | ibv::qp_max_qp_rd_atomic,
     qp_cur_state | ibv::qp_access_flags | ibv::qp_min_rnr_timer},
    {ibv::qps_rts, ibv::qps_rts, 0, qp_cur_state | ibv::qp_access_flags | ibv::qp_min_rnr_timer},
};

inline bool may_change(const QueuePair &qp, int to, int mask) {
  const int rest = mask & ~ibv::qp_state;
  if (to == ibv::qps_reset || to == ibv::qps_err) return rest == 0;
  for (const Transition &row : kTransitions) {
    if (row.from != qp.now || row.to != to) continue;
    return (rest & row.needed) == row.needed && (rest & ~(row.needed | row.allowed)) == 0;
  }
  return false;
}

inline bool sound_path(const VerbsDevice &device, const ibv::AhAttr &path) {
  if (path.port_num != 1 || path.sl > 15) return false;
  if (path.is_global == 0) return device.link_layer != ibv::link_layer_ethernet;
  return gid_at(device, path.grh.sgid_index) != nullptr;
}

// 0, or the errno of ibv_modify_qp.
inline int refuse_change(const VerbsDevice &device, const QueuePair &qp, const ibv::QpAttr &attr, int mask) {
  const auto has = [&](int flag) { return (mask & flag) != 0; };
  if (!may_change(qp, has(ibv::qp_state) ? attr.qp_state : qp.now, mask)) return EINVAL;
  if (has(qp_cur_state) && attr.cur_qp_state != qp.now) return EINVAL;
  if (has(ibv::qp_port) && attr.port_num != 1) return EINVAL;
  if (has(ibv::qp_pkey_index) && attr.pkey_index >= device.pkeys.size()) return EINVAL;
  if (has(ibv::qp_path_mtu) && (attr.path_mtu < 1 || attr.path_mtu > device.active_mtu)) return EINVAL;
  if (has(ibv::qp_av) && !sound_path(device, attr.ah_attr)) return EINVAL;
  if (has(ibv::qp_timeout) && attr.timeout > 31) return EINVAL;
  if (has(ibv::qp_retry_cnt) && attr.retry_cnt > 7) return EINVAL;
  if (has(ibv::qp_rnr_retry) && attr.rnr_retry > 7) return EINVAL;
  if (has(ibv::qp_min_rnr_timer) && attr.min_rnr_timer > 31) return EINVAL;
  constexpr uint32_t kLargest = 0xffffff;  // packet sequence numbers have 24 bits
  if (has(ibv::qp_rq_psn) && attr.rq_psn > kLargest) return EINVAL;
  if (has(ibv::qp_sq_psn) && attr.sq_psn > kLargest) return EINVAL;
  return 0;
}

inline void take_over(const ibv::QpAttr &from, int mask, ibv::QpAttr &to) {
  const auto take = [&](int flag, auto member) {
    if ((mask & flag) != 0) to.*member = from.*member;
  };
  take(ibv::qp_access_flags, &ibv::QpAttr::qp_access_flags);
  take(ibv::qp_pkey_index, &ibv::QpAttr::pkey_index);
  take(ibv::qp_port, &ibv::QpAttr::port_num);
  take(ibv::qp_av, &ibv::QpAttr::ah_attr);
  take(ibv::qp_path_mtu, &ibv::QpAttr::path_mtu);
  take(ibv::qp_dest_qpn, &ibv::QpAttr::dest_qp_num);
  take(ibv::qp_rq_psn, &ibv::QpAttr::rq_psn);
  take(ibv::qp_sq_psn, &ibv::QpAttr::sq_psn);
  take(ibv::qp_timeout, &ibv::QpAttr::timeout);
  take(ibv::qp_retry_cnt, &ibv::QpAttr::retry_cnt);
  take(ibv::qp_rnr_retry, &ibv::QpAttr::rnr_retry);
  take(ibv::qp_min_rnr_timer, &ibv::QpAttr::min_rnr_timer);
}

}  // namespace dicomm::doubles
