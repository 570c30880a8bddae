// The network that the double of libibverbs stands for: queue pairs find each other by number, and execute
// one work request at a time, in order. All of it is under the lock of its control.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <set>

#include "doubles/verbs_objects.h"

namespace dicomm::doubles {

class Fabric final : public VerbsControl {
 public:
  std::set<OpenContext *> contexts;
  std::map<uint32_t, QueuePair *> qps;  // by number; numbers and keys are never used again
  std::map<uint32_t, Region *> regions;
  uint32_t next_number = 17;

  // A forked child works on its parent's objects, through the same descriptors: no library allows that.
  std::unique_lock<std::mutex> enter() {
    if (::getpid() != process_) {
      std::fputs("double of libibverbs: called in a forked child\n", stderr);
      std::abort();
    }
    return std::unique_lock(mutex);
  }

  void error(const std::string &text) {
    if (std::find(seen.errors.begin(), seen.errors.end(), text) == seen.errors.end())
      seen.errors.push_back(text);
  }

  const VerbsDevice *device_of(const ibv::Context *context) const {
    const size_t index = context->device->index;
    return index < settings.devices.size() ? &settings.devices[index] : nullptr;
  }

  bool reset() override {
    const auto lock = enter();
    if (seen.open() > 0) return false;
    settings = {};
    seen = {};
    seeded_ = false;
    return true;
  }

  void release() override {
    const auto lock = enter();
    settings.hold = false;
    settle();
  }

  void set_port(size_t device, int state) override {
    const auto lock = enter();
    settings.devices.at(device).port_state = state;
    const int type = state == ibv::port_active ? ibv::event_port_active : ibv::event_port_err;
    for (OpenContext *context : contexts)
      if (context->device->index == device) context->events.push({{.port_num = 1}, type});
    settle();
  }

  void kill_device(size_t device) override {
    const auto lock = enter();
    for (OpenContext *context : contexts) {
      if (context->device->index != device) continue;
      context->dead = true;
      context->events.push({{.port_num = 0}, ibv::event_device_fatal});
      for (const auto &[number, qp] : qps)
        if (qp->context == context) to_error(*qp);
    }
    settle();
  }

  void kill_qp(uint32_t qp_num) override {
    const auto lock = enter();
    QueuePair &qp = *qps.at(qp_num);
    to_error(qp);
    qp.owner().events.push({{.qp = &qp}, ibv::event_qp_fatal});
    settle();
  }

  // One poll's worth of work for `cq`.
  void advance(const CompletionQueue &cq) {
    if (settings.hold) return;
    unsigned left = settings.jitter ? chance() % (settings.eager + 1) : settings.eager;
    std::vector<QueuePair *> ready;
    for (const auto &[number, qp] : qps)
      if (!qp->sends.empty() && concerns(*qp, cq)) ready.push_back(qp);
    while (left > 0 && !ready.empty()) {
      const size_t pick = chance() % ready.size();
      if (execute(*ready[pick])) {
        --left;
      } else {
        ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(pick));
      }
    }
  }

  // All work whose completion somebody sleeps for.
  void settle() {
    if (settings.hold) return;
    for (const auto &[number, qp] : qps) {
      while (awaited(*qp) && execute(*qp)) {
      }
    }
  }

  // All that is posted is flushed, in order. The peer learns nothing.
  void to_error(QueuePair &qp) {
    qp.now = ibv::qps_err;
    while (!qp.sends.empty()) {
      complete(qp, qp.sends.front(), ibv::wc_wr_flush_err);
      qp.sends.pop_front();
    }
    while (!qp.receives.empty()) {
      complete(qp, qp.receives.front(), ibv::wc_wr_flush_err);
      qp.receives.pop_front();
    }
  }

  // What the user asked for, and is allowed.
  void enter_state(QueuePair &qp, int state) {
    qp.state = state;
    if (state == ibv::qps_err) return to_error(qp);
    qp.now = state;
    if (state != ibv::qps_reset) return;
    qp.sends.clear();
    qp.receives.clear();
    qp.sends_freed = qp.sends_posted;
    qp.receives_freed = qp.receives_posted;
    purge(qp);
  }

  // Drops what `qp` left behind in its completion queues.
  void purge(QueuePair &qp) {
    for (CompletionQueue *cq : {&qp.of_sends(), &qp.of_receives()})
      std::erase_if(cq->completions, [&](const Completion &one) { return one.wc.qp_num == qp.qp_num; });
  }

  Region *find(const ibv::Pd *pd, uint32_t key, uint64_t address, uint64_t bytes, int access) const {
    const auto found = regions.find(key);
    if (found == regions.end()) return nullptr;
    Region *region = found->second;
    const VerbsDevice *device = device_of(region->context);
    if (region->mapping != nullptr && device != nullptr && !device->dmabuf_access) return nullptr;
    const bool inside = address >= region->start && bytes <= region->length &&
                        address - region->start <= region->length - bytes;
    return inside && region->pd == pd && (region->access & access) == access ? region : nullptr;
  }

 private:
  struct Span {
    char *data;
    size_t size;
  };
  using Spans = std::vector<Span>;

  uint32_t chance() {
    if (!seeded_) random_.seed(settings.seed);
    seeded_ = true;
    return static_cast<uint32_t>(random_());
  }

  const QueuePair *peer(const QueuePair &qp) const {
    const auto found = qps.find(qp.attr.dest_qp_num);
    return found == qps.end() ? nullptr : found->second;
  }
  bool concerns(const QueuePair &qp, const CompletionQueue &cq) const {
    const QueuePair *to = peer(qp);
    return &qp.of_sends() == &cq || (to != nullptr && &to->of_receives() == &cq);
  }
  bool awaited(const QueuePair &qp) const {
    const QueuePair *to = peer(qp);
    return qp.of_sends().armed || (to != nullptr && to->of_receives().armed);
  }

  // Null: nothing that `from` sends gets an answer.
  QueuePair *reach(const QueuePair &from) {
    const auto found = qps.find(from.attr.dest_qp_num);
    if (found == qps.end()) return nullptr;
    QueuePair &to = *found->second;
    if (to.now != ibv::qps_rtr && to.now != ibv::qps_rts) return nullptr;
    if (to.attr.dest_qp_num != from.qp_num || to.attr.rq_psn != from.attr.sq_psn) return nullptr;
    const VerbsDevice *here = device_of(from.context), *there = device_of(to.context);
    if (here == nullptr || there == nullptr || !connected(*here, from, *there, to)) return nullptr;
    if (from.attr.path_mtu != to.attr.path_mtu) error("path MTUs differ");
    return &to;
  }

  static bool connected(const VerbsDevice &here, const QueuePair &from, const VerbsDevice &there,
                        const QueuePair &to) {
    if (here.port_state != ibv::port_active || there.port_state != ibv::port_active) return false;
    if (here.link_layer != there.link_layer) return false;
    const uint16_t ours = here.pkeys.at(from.attr.pkey_index), theirs = there.pkeys.at(to.attr.pkey_index);
    if ((ours & 0x7fff) != (theirs & 0x7fff)) return false;
    const ibv::AhAttr &way = from.attr.ah_attr, &back = to.attr.ah_attr;
    if (here.link_layer == ibv::link_layer_infiniband && way.dlid != there.lid) return false;
    if (way.is_global != back.is_global) return false;
    if (way.is_global == 0) return true;
    if (way.grh.sgid_index >= here.gids.size() || back.grh.sgid_index >= there.gids.size()) return false;
    const VerbsGid &target = there.gids[back.grh.sgid_index];
    return std::memcmp(&target.gid, &way.grh.dgid, sizeof(ibv::Gid)) == 0 &&
           target.type == here.gids[way.grh.sgid_index].type;
  }

  // The first work request of `from`. False: it cannot move now.
  bool execute(QueuePair &from) {
    if (from.now != ibv::qps_rts || from.sends.empty()) return false;
    Send &first = from.sends.front();
    Spans source;
    int status = gather(from, first, source);
    QueuePair *to = nullptr;
    if (status == ibv::wc_success && (to = reach(from)) == nullptr) {
      if (from.attr.timeout == 0) return false;  // waits for ever
      status = ibv::wc_retry_exc_err;
    }
    if (to != nullptr && first.takes_receive() && to->receives.empty()) {
      if (!std::exchange(first.counted_rnr, true)) ++seen.rnr;
      if (from.attr.rnr_retry == 7) return false;  // waits for ever
      status = ibv::wc_rnr_retry_exc_err;
    }
    Send send = std::move(first);
    from.sends.pop_front();
    if (status == ibv::wc_success) {
      const bool cut = cut_now(from);
      if (!cut || settings.cut_how != VerbsSettings::lost)
        status = deliver(from, *to, send, source, cut && settings.cut_how == VerbsSettings::partly);
      if (cut) status = ibv::wc_retry_exc_err;
    }
    complete(from, send, status);
    if (status != ibv::wc_success) to_error(from);
    return true;
  }

  bool cut_now(const QueuePair &from) {
    if (settings.cut_after < 0 || (settings.cut_qp != 0 && settings.cut_qp != from.qp_num)) return false;
    return settings.cut_after-- == 0;
  }

  int gather(const QueuePair &from, Send &send, Spans &out) {
    const VerbsDevice *device = device_of(from.context);
    if (device == nullptr || send.bytes() > device->max_message) return wc_loc_len_err;
    if (!send.inlined.empty()) out.push_back({send.inlined.data(), send.inlined.size()});
    return locate(from.pd, send.parts, 0, out) ? ibv::wc_success : ibv::wc_loc_prot_err;
  }

  bool locate(const ibv::Pd *pd, const std::vector<ibv::Sge> &parts, int access, Spans &out) const {
    for (const ibv::Sge &part : parts) {
      if (part.length == 0) continue;
      const Region *region = find(pd, part.lkey, part.addr, part.length, access);
      if (region == nullptr) return false;
      out.push_back({region->bytes + (part.addr - region->start), part.length});
    }
    return true;
  }

  // What the sender is told. `partly`: half the bytes, and nobody hears of it.
  int deliver(const QueuePair &from, QueuePair &to, const Send &send, const Spans &source, bool partly) {
    const uint64_t bytes = send.bytes();
    Spans target;
    if (send.request.opcode != ibv::wr_send && bytes > 0) {
      const auto &[address, key] = send.request.rdma;
      const Region *region = (to.attr.qp_access_flags & ibv::access_remote_write) != 0
                                 ? find(to.pd, key, address, bytes, ibv::access_remote_write)
                                 : nullptr;
      if (region == nullptr) {
        to_error(to);
        to.owner().events.push({{.qp = &to}, event_qp_access_err});
        return ibv::wc_rem_access_err;
      }
      target.push_back({region->bytes + (address - region->start), bytes});
    } else if (send.request.opcode == ibv::wr_send) {
      if (!locate(to.pd, to.receives.front().parts, ibv::access_local_write, target))
        return refuse(to, ibv::wc_loc_prot_err, ibv::wc_rem_op_err);
      uint64_t room = 0;
      for (const Span &span : target) room += span.size;
      if (room < bytes) return refuse(to, wc_loc_len_err, wc_rem_inv_req_err);
    }
    copy(source, target, partly ? bytes / 2 : bytes);
    if (partly) return ibv::wc_success;
    seen.bytes += bytes;
    seen.inlined += !send.inlined.empty();
    ++(send.request.opcode == ibv::wr_send         ? seen.sends
       : send.request.opcode == ibv::wr_rdma_write ? seen.writes
                                                   : seen.writes_with_imm);
    if (send.takes_receive()) {
      const Receive receive = std::move(to.receives.front());
      to.receives.pop_front();
      arrive(from, to, receive, send);
    }
    return ibv::wc_success;
  }

  int refuse(QueuePair &to, int receiver, int sender) {
    complete(to, to.receives.front(), receiver);
    to.receives.pop_front();
    to_error(to);
    return sender;
  }

  static void copy(const Spans &source, const Spans &target, uint64_t bytes) {
    size_t s = 0, t = 0, from = 0, to = 0;
    while (bytes > 0) {
      const size_t size = std::min({source[s].size - from, target[t].size - to, size_t{bytes}});
      std::memmove(target[t].data + to, source[s].data + from, size);
      bytes -= size;
      if ((from += size) == source[s].size) ++s, from = 0;
      if ((to += size) == target[t].size) ++t, to = 0;
    }
  }

  // Only these are defined where the status is not success: the rest is noise.
  static ibv::Wc outcome(const QueuePair &qp, uint64_t wr_id, int status) {
    ibv::Wc wc{};
    if (status != ibv::wc_success) std::memset(&wc, 0x5a, sizeof wc);
    wc.wr_id = wr_id;
    wc.status = status;
    wc.qp_num = qp.qp_num;
    return wc;
  }

  void complete(QueuePair &qp, const Send &send, int status) {
    const bool asked = qp.init.sq_sig_all != 0 || (send.request.send_flags & ibv::send_signaled) != 0;
    if (status == ibv::wc_success && !asked) return;
    ibv::Wc wc = outcome(qp, send.request.wr_id, status);
    if (status == ibv::wc_success) {
      wc.opcode = send.request.opcode == ibv::wr_send ? wc_opcode_send : wc_opcode_rdma_write;
      wc.byte_len = static_cast<uint32_t>(send.bytes());
    }
    add(qp.of_sends(), {wc, true, send.number});
  }

  void complete(QueuePair &qp, const Receive &receive, int status) {
    add(qp.of_receives(), {outcome(qp, receive.wr_id, status), false, receive.number});
  }

  void arrive(const QueuePair &from, QueuePair &to, const Receive &receive, const Send &send) {
    ibv::Wc wc = outcome(to, receive.wr_id, ibv::wc_success);
    const bool immediate = send.request.opcode == ibv::wr_rdma_write_with_imm;
    wc.opcode = immediate ? ibv::wc_opcode_recv_with_imm : ibv::wc_opcode_recv;
    wc.byte_len = static_cast<uint32_t>(send.bytes());
    wc.imm_data = immediate ? send.request.imm_data : 0;
    wc.wc_flags = immediate ? wc_with_imm : 0;
    wc.src_qp = from.qp_num;
    add(to.of_receives(), {wc, false, receive.number});
  }

  void add(CompletionQueue &cq, const Completion &completion) {
    if (cq.completions.size() == static_cast<size_t>(cq.cqe)) return error("completion queue overrun");
    cq.completions.push_back(completion);
    if (!std::exchange(cq.armed, false) || cq.channel == nullptr) return;
    static_cast<Channel *>(cq.channel)->events.push(&cq);
    ++seen.events;
  }

  const pid_t process_ = ::getpid();
  std::mt19937 random_;
  bool seeded_ = false;
};

}  // namespace dicomm::doubles
