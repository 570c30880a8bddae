// A libibverbs for tests: reliable connections among the queue pairs of one process, over the layouts of
// abi.h. It keeps the rules of the real one that a transport can break: states, capacities, keys, what a
// completion frees, one event for each arming, what may be destroyed when. control.h notes its calls and
// programs their errno (all but posting, polling and taking events); verbs_control.h has the rest.
#include <endian.h>
#include <cerrno>

#include "doubles/control.h"
#include "doubles/verbs_fabric.h"
#include "doubles/verbs_states.h"

#define EXPORT __attribute__((visibility("default")))

using namespace dicomm;
using namespace dicomm::doubles;

namespace {

Fabric fabric;

#define CALLED(name, ...) \
  if (const int programmed = control().called(name, __VA_ARGS__); programmed != 0) return programmed
#define CALLED_FOR(name, ...) \
  if (const int programmed = control().called(name, __VA_ARGS__); programmed != 0) return null(programmed)

std::nullptr_t null(int error) {
  errno = error;
  return nullptr;
}

OpenContext &open_context(ibv::Context *context) { return *static_cast<OpenContext *>(context); }

const VerbsDevice *alive(ibv::Context *context) {
  return open_context(context).dead ? nullptr : fabric.device_of(context);
}

// Posts a list of work requests. `one` returns 0 or the errno that ends the list at a request.
template <class Request, class One>
int post(Request *request, Request **bad, One one) {
  int result = 0;
  for (; request != nullptr; request = request->next) {
    result = one(*request);
    if (result != 0) break;
  }
  if (result != 0) *bad = request;
  fabric.settle();
  return result;
}

int post_send(ibv::Qp *handle, ibv::SendWr *request, ibv::SendWr **bad) {
  const auto lock = fabric.enter();
  auto &qp = *static_cast<QueuePair *>(handle);
  return post(request, bad, [&](const ibv::SendWr &one) {
    if (qp.now != ibv::qps_rts && qp.now != ibv::qps_err) return EINVAL;
    if (one.num_sge < 0 || static_cast<uint32_t>(one.num_sge) > qp.init.cap.max_send_sge) return EINVAL;
    if (one.opcode < ibv::wr_rdma_write || one.opcode > ibv::wr_send) return EINVAL;
    Send send{one, {one.sg_list, one.sg_list + one.num_sge}, {}, qp.sends_posted + 1};
    if ((one.send_flags & ibv::send_inline) != 0) {
      if (send.bytes() > qp.init.cap.max_inline_data) return EINVAL;
      for (const ibv::Sge &part : std::exchange(send.parts, {})) {
        const char *data = reinterpret_cast<const char *>(part.addr);
        send.inlined.insert(send.inlined.end(), data, data + part.length);
      }
    }
    if (qp.sends_posted - qp.sends_freed == qp.init.cap.max_send_wr) return ENOMEM;
    ++qp.sends_posted;
    qp.sends.push_back(std::move(send));
    if (qp.now == ibv::qps_err) fabric.to_error(qp);
    return 0;
  });
}

int post_recv(ibv::Qp *handle, ibv::RecvWr *request, ibv::RecvWr **bad) {
  const auto lock = fabric.enter();
  auto &qp = *static_cast<QueuePair *>(handle);
  return post(request, bad, [&](const ibv::RecvWr &one) {
    if (qp.now == ibv::qps_reset) return EINVAL;
    if (one.num_sge < 0 || static_cast<uint32_t>(one.num_sge) > qp.init.cap.max_recv_sge) return EINVAL;
    if (qp.receives_posted - qp.receives_freed == qp.init.cap.max_recv_wr) return ENOMEM;
    qp.receives.push_back({one.wr_id, {one.sg_list, one.sg_list + one.num_sge}, ++qp.receives_posted});
    if (qp.now == ibv::qps_err) fabric.to_error(qp);
    return 0;
  });
}

int poll_cq(ibv::Cq *handle, int entries, ibv::Wc *out) {
  const auto lock = fabric.enter();
  auto &cq = *static_cast<CompletionQueue *>(handle);
  fabric.advance(cq);
  int taken = 0;
  for (; taken < entries && !cq.completions.empty(); ++taken) {
    const Completion &first = cq.completions.front();
    out[taken] = first.wc;
    if (const auto found = fabric.qps.find(first.wc.qp_num); found != fabric.qps.end())
      (first.of_send ? found->second->sends_freed : found->second->receives_freed) = first.number;
    cq.completions.pop_front();
  }
  fabric.settle();
  return taken;
}

int req_notify_cq(ibv::Cq *handle, int) {
  const auto lock = fabric.enter();
  static_cast<CompletionQueue *>(handle)->armed = true;
  fabric.settle();
  return 0;
}

ibv::Mr *register_range(ibv::Pd *pd, uint64_t start, size_t bytes, char *data, int access, void *mapping,
                        size_t mapped) {
  OpenContext &context = open_context(pd->context);
  const bool writable = (access & ibv::access_local_write) != 0;
  if (bytes == 0 || ((access & ibv::access_remote_write) != 0 && !writable)) return null(EINVAL);
  const VerbsDevice *device = alive(pd->context);
  if (device == nullptr) return null(EIO);
  if (bytes > device->max_registered - std::min(device->max_registered, context.registered))
    return null(ENOMEM);
  auto *region = new Region;
  static_cast<ibv::Mr &>(*region) = {pd->context, pd, data, bytes, 0, 0, 0};
  region->handle = region->lkey = region->rkey = fabric.next_number++;
  region->start = start;
  region->bytes = data;
  region->access = access;
  region->mapping = mapping;
  region->mapped = mapped;
  fabric.regions[region->lkey] = region;
  context.registered += bytes;
  ++static_cast<Domain *>(pd)->children;
  ++fabric.seen.mrs;
  return region;
}

// Devices outlive their list, as in the real library where they are open; here all do.
ibv::Device *device_at(size_t index) {
  static std::deque<ibv::Device> devices;
  while (devices.size() <= index)
    devices.push_back({devices.size(), "double" + std::to_string(devices.size())});
  return &devices[index];
}

}  // namespace

extern "C" {

EXPORT VerbsControl *dicomm_double_verbs_control() { return &fabric; }

EXPORT ibv::Device **ibv_get_device_list(int *count) {
  CALLED_FOR("get_device_list", " ");
  const auto lock = fabric.enter();
  const size_t devices = fabric.settings.devices.size();
  auto **list = new ibv::Device *[devices + 1]();
  for (size_t i = 0; i < devices; ++i) list[i] = device_at(i);
  if (count != nullptr) *count = static_cast<int>(devices);
  return list;
}

EXPORT void ibv_free_device_list(ibv::Device **list) { delete[] list; }

EXPORT const char *ibv_get_device_name(ibv::Device *device) { return device->name.c_str(); }

EXPORT ibv::Context *ibv_open_device(ibv::Device *device) {
  CALLED_FOR("open_device", "%s", device->name.c_str());
  const auto lock = fabric.enter();
  auto *context = new OpenContext;
  context->device = device;
  context->ops.poll_cq = poll_cq;
  context->ops.req_notify_cq = req_notify_cq;
  context->ops.post_send = post_send;
  context->ops.post_recv = post_recv;
  context->cmd_fd = -1;
  context->async_fd = context->events.fd();
  context->num_comp_vectors = 1;
  fabric.contexts.insert(context);
  ++fabric.seen.contexts;
  return context;
}

EXPORT int ibv_close_device(ibv::Context *context) {
  CALLED("close_device", "%s", context->device->name.c_str());
  const auto lock = fabric.enter();
  OpenContext *open = &open_context(context);
  if (open->children > 0) {
    fabric.error("context closed while in use");
    return EBUSY;
  }
  fabric.contexts.erase(open);
  delete open;
  --fabric.seen.contexts;
  return 0;
}

EXPORT int ibv_query_device(ibv::Context *context, ibv::DeviceAttr *out) {
  CALLED("query_device", "%s", context->device->name.c_str());
  const auto lock = fabric.enter();
  const VerbsDevice *device = alive(context);
  if (device == nullptr) return EIO;
  *out = {};
  std::snprintf(out->fw_ver, sizeof out->fw_ver, "1.0.double");
  out->node_guid = out->sys_image_guid = htobe64(context->device->index + 1);
  out->max_mr_size = device->max_registered;
  out->page_size_cap = 4096;
  out->max_qp = 1 << 16;
  out->max_qp_wr = device->max_qp_wr;
  out->max_sge = out->max_sge_rd = device->max_sge;
  out->max_cq = 1 << 16;
  out->max_cqe = device->max_cqe;
  out->max_mr = 1 << 20;
  out->max_pd = 1 << 16;
  out->max_pkeys = static_cast<uint16_t>(device->pkeys.size());
  out->phys_port_cnt = 1;
  return 0;
}

EXPORT int ibv_query_port(ibv::Context *context, uint8_t port, ibv::PortAttr *out) {
  CALLED("query_port", "%s port=%d", context->device->name.c_str(), port);
  const auto lock = fabric.enter();
  const VerbsDevice *device = alive(context);
  if (device == nullptr) return EIO;
  if (port != 1) return EINVAL;
  const uint16_t flags2 = out->port_cap_flags2;  // the real function knows a shorter structure
  *out = {};
  out->port_cap_flags2 = flags2;
  out->state = device->port_state;
  out->max_mtu = device->max_mtu;
  out->active_mtu = device->active_mtu;
  out->gid_tbl_len = device->gid_table;
  out->max_msg_sz = device->max_message;
  out->pkey_tbl_len = static_cast<uint16_t>(device->pkeys.size());
  out->lid = device->lid;
  out->active_width = 2;  // 4X
  out->active_speed = 32;
  out->link_layer = static_cast<uint8_t>(device->link_layer);
  return 0;
}

EXPORT int ibv_query_pkey(ibv::Context *context, uint8_t port, int index, uint16_t *pkey) {
  CALLED("query_pkey", "%s port=%d index=%d", context->device->name.c_str(), port, index);
  const auto lock = fabric.enter();
  const VerbsDevice *device = alive(context);
  if (device == nullptr || port != 1 || index < 0 || static_cast<size_t>(index) >= device->pkeys.size()) {
    errno = device == nullptr ? EIO : ENOENT;
    return -1;
  }
  *pkey = htobe16(device->pkeys[static_cast<size_t>(index)]);
  return 0;
}

EXPORT int _ibv_query_gid_ex(ibv::Context *context, uint32_t port, uint32_t index, ibv::GidEntry *out,
                             uint32_t flags, size_t entry_size) {
  CALLED("query_gid_ex", "%s port=%u index=%u", context->device->name.c_str(), port, index);
  const auto lock = fabric.enter();
  const VerbsDevice *device = alive(context);
  if (device == nullptr) return EIO;
  if (flags != 0) return EOPNOTSUPP;
  if (port != 1 || index >= static_cast<uint32_t>(device->gid_table) || entry_size != sizeof *out)
    return EINVAL;
  const VerbsGid *gid = gid_at(*device, index);
  if (gid == nullptr) return ENODATA;
  *out = {gid->gid, index, port, gid->type, gid->interface};
  return 0;
}

EXPORT ibv::Pd *ibv_alloc_pd(ibv::Context *context) {
  CALLED_FOR("alloc_pd", " ");
  const auto lock = fabric.enter();
  if (alive(context) == nullptr) return null(EIO);
  auto *pd = new Domain;
  pd->context = context;
  pd->handle = fabric.next_number++;
  ++open_context(context).children;
  ++fabric.seen.pds;
  return pd;
}

EXPORT int ibv_dealloc_pd(ibv::Pd *handle) {
  CALLED("dealloc_pd", " ");
  const auto lock = fabric.enter();
  auto *pd = static_cast<Domain *>(handle);
  if (pd->children > 0) return EBUSY;
  --open_context(pd->context).children;
  delete pd;
  --fabric.seen.pds;
  return 0;
}

EXPORT ibv::Mr *ibv_reg_mr(ibv::Pd *pd, void *address, size_t bytes, int access) {
  CALLED_FOR("reg_mr", "%zu access=%d", bytes, access);
  const auto lock = fabric.enter();
  const VerbsDevice *device = alive(pd->context);
  if (device != nullptr && device->refuse_mr) {
    if (const int refused = device->refuse_mr(address, bytes); refused != 0) return null(refused);
  }
  return register_range(pd, reinterpret_cast<uint64_t>(address), bytes, static_cast<char *>(address), access,
                        nullptr, 0);
}

EXPORT ibv::Mr *ibv_reg_dmabuf_mr(ibv::Pd *pd, uint64_t offset, size_t bytes, uint64_t iova, int fd,
                                  int access) {
  CALLED_FOR("reg_dmabuf_mr", "offset=%lu %zu access=%d", offset, bytes, access);
  const auto lock = fabric.enter();
  const VerbsDevice *device = alive(pd->context);
  if (device == nullptr) return null(EIO);
  if (!device->dmabuf) return null(EOPNOTSUPP);
  const uint64_t page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)), before = offset % page;
  void *mapping = ::mmap(nullptr, bytes + before, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                         static_cast<off_t>(offset - before));
  if (mapping == MAP_FAILED) return nullptr;
  char *data = static_cast<char *>(mapping) + before;
  ibv::Mr *region = register_range(pd, iova, bytes, data, access, mapping, bytes + before);
  if (region == nullptr) ::munmap(mapping, bytes + before);
  return region;
}

EXPORT int ibv_dereg_mr(ibv::Mr *handle) {
  CALLED("dereg_mr", "%zu", handle->length);
  const auto lock = fabric.enter();
  auto *region = static_cast<Region *>(handle);
  fabric.regions.erase(region->lkey);
  open_context(region->context).registered -= region->length;
  --static_cast<Domain *>(region->pd)->children;
  delete region;
  --fabric.seen.mrs;
  return 0;
}

EXPORT ibv::CompChannel *ibv_create_comp_channel(ibv::Context *context) {
  CALLED_FOR("create_comp_channel", " ");
  const auto lock = fabric.enter();
  if (alive(context) == nullptr) return null(EIO);
  auto *channel = new Channel;
  static_cast<ibv::CompChannel &>(*channel) = {context, channel->events.fd(), 0};
  ++open_context(context).children;
  ++fabric.seen.channels;
  return channel;
}

EXPORT int ibv_destroy_comp_channel(ibv::CompChannel *handle) {
  CALLED("destroy_comp_channel", " ");
  const auto lock = fabric.enter();
  if (handle->refcnt > 0) return EBUSY;
  --open_context(handle->context).children;
  delete static_cast<Channel *>(handle);
  --fabric.seen.channels;
  return 0;
}

EXPORT ibv::Cq *ibv_create_cq(ibv::Context *context, int cqe, void *user, ibv::CompChannel *channel,
                              int vector) {
  CALLED_FOR("create_cq", "%d", cqe);
  const auto lock = fabric.enter();
  const VerbsDevice *device = alive(context);
  if (device == nullptr) return null(EIO);
  if (cqe < 1 || cqe > device->max_cqe || vector < 0 || vector >= context->num_comp_vectors)
    return null(EINVAL);
  if (channel != nullptr && channel->context != context) return null(EINVAL);
  auto *cq = new CompletionQueue;
  cq->context = context;
  cq->channel = channel;
  cq->cq_context = user;
  cq->handle = fabric.next_number++;
  cq->cqe = cqe;
  if (channel != nullptr) ++channel->refcnt;
  ++open_context(context).children;
  ++fabric.seen.cqs;
  return cq;
}

EXPORT int ibv_destroy_cq(ibv::Cq *handle) {
  CALLED("destroy_cq", " ");
  const auto lock = fabric.enter();
  auto *cq = static_cast<CompletionQueue *>(handle);
  if (cq->users > 0) return EBUSY;
  if (cq->delivered != cq->acknowledged)
    fabric.error("completion queue destroyed with events not acknowledged");
  if (cq->channel != nullptr) {
    static_cast<Channel *>(cq->channel)->events.withdraw([&](CompletionQueue *event) { return event == cq; });
    --cq->channel->refcnt;
  }
  --open_context(cq->context).children;
  delete cq;
  --fabric.seen.cqs;
  return 0;
}

EXPORT int ibv_get_cq_event(ibv::CompChannel *channel, ibv::Cq **out, void **user) {
  const bool taken = static_cast<Channel *>(channel)->events.pop(fabric.mutex, [&](CompletionQueue *cq) {
    ++cq->delivered;
    *out = cq;
    *user = cq->cq_context;
  });
  return taken ? 0 : -1;
}

EXPORT void ibv_ack_cq_events(ibv::Cq *handle, unsigned count) {
  const auto lock = fabric.enter();
  auto *cq = static_cast<CompletionQueue *>(handle);
  cq->acknowledged += count;
  if (cq->acknowledged > cq->delivered) fabric.error("more events acknowledged than taken");
}

EXPORT ibv::Qp *ibv_create_qp(ibv::Pd *pd, ibv::QpInitAttr *init) {
  CALLED_FOR("create_qp", "sends=%u receives=%u inline=%u", init->cap.max_send_wr, init->cap.max_recv_wr,
             init->cap.max_inline_data);
  const auto lock = fabric.enter();
  const VerbsDevice *device = alive(pd->context);
  if (device == nullptr) return null(EIO);
  if (const int refused = refuse_creation(*device, *pd, *init); refused != 0) return null(refused);
  auto *qp = new QueuePair;
  qp->context = pd->context;
  qp->qp_context = init->qp_context;
  qp->pd = pd;
  qp->send_cq = init->send_cq;
  qp->recv_cq = init->recv_cq;
  qp->handle = qp->qp_num = fabric.next_number++;
  qp->qp_type = init->qp_type;
  qp->init = *init;
  ++qp->of_sends().users;
  ++qp->of_receives().users;
  ++static_cast<Domain *>(pd)->children;
  fabric.qps[qp->qp_num] = qp;
  ++fabric.seen.qps;
  return qp;
}

EXPORT int ibv_modify_qp(ibv::Qp *handle, ibv::QpAttr *attr, int mask) {
  CALLED("modify_qp", "state=%d mask=%#x", (mask & ibv::qp_state) != 0 ? attr->qp_state : -1, mask);
  const auto lock = fabric.enter();
  auto &qp = *static_cast<QueuePair *>(handle);
  const VerbsDevice *device = alive(qp.context);
  if (device == nullptr) return EIO;
  if (const int refused = refuse_change(*device, qp, *attr, mask); refused != 0) return refused;
  take_over(*attr, mask, qp.attr);
  if ((mask & ibv::qp_state) != 0) fabric.enter_state(qp, attr->qp_state);
  fabric.settle();
  return 0;
}

EXPORT int ibv_destroy_qp(ibv::Qp *handle) {
  CALLED("destroy_qp", " ");
  const auto lock = fabric.enter();
  auto *qp = static_cast<QueuePair *>(handle);
  if (qp->delivered != qp->acknowledged) fabric.error("queue pair destroyed with events not acknowledged");
  qp->owner().events.withdraw([&](const ibv::AsyncEvent &event) {
    return of_qp(event) && event.element.qp == static_cast<ibv::Qp *>(qp);
  });
  if (fabric.settings.purge) fabric.purge(*qp);
  --qp->of_sends().users;
  --qp->of_receives().users;
  --static_cast<Domain *>(qp->pd)->children;
  fabric.qps.erase(qp->qp_num);
  delete qp;
  --fabric.seen.qps;
  fabric.settle();
  return 0;
}

EXPORT int ibv_get_async_event(ibv::Context *context, ibv::AsyncEvent *out) {
  const bool taken = open_context(context).events.pop(fabric.mutex, [&](const ibv::AsyncEvent &event) {
    if (of_qp(event)) ++static_cast<QueuePair *>(event.element.qp)->delivered;
    *out = event;
  });
  return taken ? 0 : -1;
}

EXPORT void ibv_ack_async_event(ibv::AsyncEvent *event) {
  const auto lock = fabric.enter();
  if (of_qp(*event)) ++static_cast<QueuePair *>(event->element.qp)->acknowledged;
}

EXPORT const char *ibv_wc_status_str(int status) {
  static const char *const texts[] = {"success",
                                      "local length error",
                                      "local QP operation error",
                                      "local EE context operation error",
                                      "local protection error",
                                      "Work Request Flushed Error",
                                      "memory bind operation error",
                                      "bad response error",
                                      "local access error",
                                      "remote invalid request error",
                                      "remote access error",
                                      "remote operation error",
                                      "transport retry counter exceeded",
                                      "RNR retry counter exceeded"};
  return status >= 0 && status < static_cast<int>(std::size(texts)) ? texts[status] : "unknown";
}

}  // extern "C"
