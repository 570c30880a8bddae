#include "transport/verbs/port.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>

#include <algorithm>

#include "transport/verbs/gid.h"

namespace dicomm {

namespace {

constexpr uint32_t kMaxGids = 256;

uint8_t mtu_code(uint32_t bytes) {
  uint8_t code = 1;
  while (code < 5 && (256u << code) <= bytes) ++code;
  return code;
}

Status no_block(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags >= 0 && ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0) return {};
  return Status::from_errno(errno, "cannot make a completion channel non-blocking");
}

// The place among those the settings name, their number if it is none of them.
size_t place(const VerbsSettings &settings, const std::string &device, unsigned port) {
  const auto &names = settings.devices;
  const auto found = std::find_if(names.begin(), names.end(), [&](const std::string &one) {
    return one == device || one == concat(device, ":", port);
  });
  return static_cast<size_t>(found - names.begin());
}

}  // namespace

Status VerbsPort::open(const VerbsSettings &settings, const ibv::Gid &address, Ports &out) {
  std::shared_ptr<const VerbsLibrary> library;
  DICOMM_TRY(VerbsLibrary::open(settings.library, library));
  int count = 0;
  ibv::Device **devices = library->call.get_device_list(&count);
  if (devices == nullptr) return Status::system_failure(DICOMM_NOT_SUPPORTED, errno, "ibv_get_device_list");
  std::string why;
  for (int i = 0; i < count; ++i) {
    const std::string name = library->call.get_device_name(devices[i]);
    // Ports of one device are numbered from 1; opening tells when there is no such port.
    for (uint8_t number = 1; number <= 2; ++number) {
      if (!settings.devices.empty() && place(settings, name, number) == settings.devices.size()) continue;
      std::unique_ptr<VerbsPort> port(new VerbsPort(library, name, number));
      if (const Status opened = port->open(devices[i], settings, address); opened.ok())
        out.push_back(std::move(port));
      else
        why += concat("; ", name, " port ", int{number}, ": ", opened.failure()->text);
    }
  }
  library->call.free_device_list(devices);
  std::stable_sort(out.begin(), out.end(), [&](const auto &a, const auto &b) {
    return place(settings, a->name_, a->number_) < place(settings, b->name_, b->number_);
  });
  std::stable_partition(out.begin(), out.end(), [&](const std::unique_ptr<VerbsPort> &port) {
    return same(port->address().gid, address);
  });
  out.resize(std::min(out.size(), kMaxPorts));
  if (!out.empty()) return {};
  if (why.empty())
    why = count == 0 ? "; there is no RDMA device in this network namespace" : "; no device of those named";
  return Status::make(DICOMM_NOT_SUPPORTED, "no RDMA port can be used", why);
}

Status VerbsPort::open(ibv::Device *device, const VerbsSettings &settings, const ibv::Gid &address) {
  context_ = call().open_device(device);
  if (context_ == nullptr)
    return Status::from_errno(errno, "ibv_open_device (are /dev/infiniband/uverbs* readable and writable?)");
  ibv::DeviceAttr attributes{};
  if (const int error = call().query_device(context_, &attributes); error != 0)
    return Status::from_errno(error, "ibv_query_device");
  if (number_ > attributes.phys_port_cnt) return Status::make(DICOMM_NOT_SUPPORTED, "it has no such port");
  ibv::PortAttr port{};
  if (const int error = call().query_port(context_, number_, &port); error != 0)
    return Status::from_errno(error, "ibv_query_port");
  if (port.state != ibv::port_active)
    return Status::make(DICOMM_NOT_SUPPORTED, "its state is ", port.state,
                        ", not 4 (ACTIVE): check the cable and ", "that its interface is up");
  DICOMM_TRY(choose_address(settings, address, port));
  pd_ = call().alloc_pd(context_);
  if (pd_ == nullptr) return Status::from_errno(errno, "ibv_alloc_pd");
  channel_ = call().create_comp_channel(context_);
  if (channel_ == nullptr) return Status::from_errno(errno, "ibv_create_comp_channel");
  DICOMM_TRY(no_block(channel_->fd));
  return no_block(context_->async_fd);
}

Status VerbsPort::choose_address(const VerbsSettings &settings, const ibv::Gid &address,
                                 const ibv::PortAttr &port) {
  const bool infiniband = port.link_layer == ibv::link_layer_infiniband;
  const auto length = std::min(static_cast<uint32_t>(std::max(port.gid_tbl_len, 0)), kMaxGids);
  std::vector<ibv::GidEntry> table;
  for (uint32_t i = 0; i < length; ++i) {
    ibv::GidEntry entry{};
    if (call().query_gid_ex(context_, number_, i, &entry, 0, sizeof(entry)) == 0) table.push_back(entry);
  }
  const int index = settings.gid_index >= 0 ? settings.gid_index : choose_gid(table, infiniband, address);
  const auto chosen = std::find_if(table.begin(), table.end(), [&](const ibv::GidEntry &entry) {
    return static_cast<int>(entry.gid_index) == index;
  });
  if (chosen == table.end())
    return Status::make(DICOMM_NOT_SUPPORTED, "its GID table has no usable entry",
                        settings.gid_index >= 0 ? concat(" ", index) : "",
                        ": does its interface have an address?");
  gid_index_ = index;
  address_.gid = chosen->gid;
  address_.lid = port.lid;
  address_.mtu = static_cast<uint8_t>(std::min<int>(port.active_mtu, mtu_code(settings.mtu)));
  address_.infiniband = infiniband;
  return {};
}

void VerbsPort::look_again(const VerbsSettings &settings, const ibv::Gid &address) {
  ibv::PortAttr port{};
  const bool known = call().query_port(context_, number_, &port) == 0;
  if (known) (void)choose_address(settings, address, port);  // without one for now, it keeps what it had
}

VerbsPort::~VerbsPort() {
  if (context_ == nullptr) return;
  if (channel_ != nullptr) call().destroy_comp_channel(channel_);
  if (pd_ != nullptr) call().dealloc_pd(pd_);
  call().close_device(context_);
}

std::string VerbsPort::describe() const {
  char text[INET6_ADDRSTRLEN] = "";
  ::inet_ntop(AF_INET6, address_.gid.raw, text, sizeof(text));
  return concat(name_, " port ", int{number_}, ", GID ", gid_index_, " ", text);
}

bool VerbsPort::make(const std::function<ibv::Mr *()> &attempt, ibv::Mr *&out) const {
  out = attempt();
  if (out == nullptr && errno == ENOMEM && make_room_ && make_room_()) out = attempt();
  return out != nullptr;
}

Status VerbsPort::register_memory(void *data, size_t bytes, int access, ibv::Mr *&out) const {
  if (make([&] { return call().reg_mr(pd_, data, bytes, access); }, out)) return {};
  const int error = errno;
  const char *advice = error == ENOMEM ? "; raise the locked-memory limit: ulimit -l unlimited" : "";
  return Status::from_errno(error, concat("ibv_reg_mr of ", bytes, " bytes on ", describe(), advice));
}

Status VerbsPort::register_dmabuf(int fd, uint64_t offset, const void *data, size_t bytes, int access,
                                  ibv::Mr *&out) const {
  if (call().reg_dmabuf_mr == nullptr)
    return Status::make(DICOMM_NOT_SUPPORTED, "libibverbs has no ibv_reg_dmabuf_mr: rdma-core 34 has");
  const auto address = reinterpret_cast<uint64_t>(data);
  if (make([&] { return call().reg_dmabuf_mr(pd_, offset, bytes, address, fd, access); }, out)) return {};
  return Status::from_errno(errno, concat("ibv_reg_dmabuf_mr of ", bytes, " bytes on ", describe()));
}

void VerbsPort::deregister(ibv::Mr *region) const {
  if (usable()) call().dereg_mr(region);
}

}  // namespace dicomm
