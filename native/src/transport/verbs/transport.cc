#include "transport/verbs/transport.h"

#include <unistd.h>

#include <cstring>

#include "base/json.h"
#include "transport/stream/interface.h"
#include "transport/verbs/gid.h"

namespace dicomm {

// What a port says of itself when nobody polls.
class VerbsTransport::PortHandler final : public FdHandler {
 public:
  PortHandler(VerbsTransport &transport, uint32_t index)
      : transport_(transport), index_(index), port_(*transport.verbs_.ports[index]) {}

  void on_ready(uint32_t events) override {
    ibv::Cq *queue = nullptr;
    void *link = nullptr;
    while (port_.call().get_cq_event(port_.channel(), &queue, &link) == 0) {
      port_.call().ack_cq_events(queue, 1);
      static_cast<VerbsLink *>(link)->disarm();
    }
    // A card that fails or loses its link says so here, long before the time-outs of what is under way.
    ibv::AsyncEvent event{};
    while (port_.call().get_async_event(port_.context(), &event) == 0) {
      port_.call().ack_async_event(&event);
      const bool here = event.element.port_num == port_.number();
      if (event.event_type == ibv::event_device_fatal)
        lost(VerbsPort::State::failed, " has failed");
      else if (event.event_type == ibv::event_port_err && here)
        lost(VerbsPort::State::down, " has lost its link");
      else if (event.event_type == ibv::event_port_active && here)
        returned();
    }
    // The kernel has taken the device away, and would say so for ever.
    if ((events & (EPOLLERR | EPOLLHUP)) == 0) return;
    lost(VerbsPort::State::failed, " is gone");
    transport_.shared_.reactor.remove(port_.channel()->fd);
    transport_.shared_.reactor.remove(port_.context()->async_fd);
  }

 private:
  void lost(VerbsPort::State state, const char *what) {
    port_.set_state(state);
    const std::string why = concat(port_.describe(), what);
    for (VerbsConnection *const connection : transport_.verbs_.connections)
      connection->port_lost(index_, why);
  }

  void returned() {
    port_.set_state(VerbsPort::State::up);
    if (!port_.up()) return;
    port_.look_again(transport_.verbs_.settings, transport_.own_);
    for (VerbsConnection *const connection : transport_.verbs_.connections) connection->port_returned(index_);
  }

  VerbsTransport &transport_;
  const uint32_t index_;
  VerbsPort &port_;
};

// Memory was unmapped: what the card holds of it is let go, though nobody sends any more.
class VerbsTransport::CacheHandler final : public FdHandler {
 public:
  explicit CacheHandler(RegionCache &cache) : cache_(cache) {}
  void on_ready(uint32_t) override {
    uint64_t count = 0;
    (void)!::read(cache_.news(), &count, sizeof(count));
    cache_.sweep();
  }

 private:
  RegionCache &cache_;
};

VerbsTransport::VerbsTransport(Reactor &reactor, Sink &sink, const VerbsOptions &options)
    : StreamTransport(reactor, sink, "rdma", {kVerbsMaxPayload, kVerbsMaxPayload}, options),
      interface_(options.interface),
      route_to_(options.route_to) {
  shared_.options.sockets_per_peer = 1;
  verbs_.settings = options.settings;
  verbs_.log = options.log;
  verbs_.name_of = options.name_of;
  for (StagingPool *const pool : {&verbs_.staging_out, &verbs_.staging_in})
    pool->on_return([this] { shared_.reactor.kick(); });
}

VerbsTransport::~VerbsTransport() {
  clear();
  if (verbs_.regions.news() >= 0) shared_.reactor.remove(verbs_.regions.news());
  for (const auto &port : verbs_.ports) {
    if (!port->usable()) continue;
    shared_.reactor.remove(port->channel()->fd);
    shared_.reactor.remove(port->context()->async_fd);
  }
}

Status VerbsTransport::open() {
  SocketAddress address;
  DICOMM_TRY(choose_address(interface_, route_to_, address));
  own_ = gid_of(address);
  DICOMM_TRY(VerbsPort::open(verbs_.settings, own_, verbs_.ports));
  for (uint32_t i = 0; i < verbs_.ports.size(); ++i) {
    const auto &port = verbs_.ports[i];
    handlers_.push_back(std::make_unique<PortHandler>(*this, i));
    DICOMM_TRY(shared_.reactor.add(port->channel()->fd, EPOLLIN, handlers_.back().get()));
    DICOMM_TRY(shared_.reactor.add(port->context()->async_fd, EPOLLIN, handlers_.back().get()));
  }
  if (verbs_.settings.direct) verbs_.regions.start();
  if (verbs_.regions.news() >= 0) {
    cache_handler_ = std::make_unique<CacheHandler>(verbs_.regions);
    DICOMM_TRY(shared_.reactor.add(verbs_.regions.news(), EPOLLIN, cache_handler_.get()));
  }
  return listen(address);
}

// "rdma HOST PORT": where two processes meet before they use their cards.
std::string VerbsTransport::address() const { return concat("rdma ", host_and_port(listening())); }

Status VerbsTransport::locate(const PeerAddress &peer, SocketAddress &out) const {
  return parse_host_and_port(line_of(peer.address, shared_.path), listening(), out);
}

std::unique_ptr<Connection> VerbsTransport::connection(Connection::Owner &owner, UniqueFd fd) {
  return std::make_unique<VerbsConnection>(shared_, verbs_, owner, std::move(fd));
}

std::string VerbsTransport::counters() const {
  VerbsCounters all = verbs_.closed;
  for (const VerbsConnection *connection : verbs_.connections) all.add(connection->counted());
  std::string ports;
  for (const auto &port : verbs_.ports)
    ports += concat(ports.empty() ? "\"" : ", \"", port->describe(), "\"");
  return concat(StreamTransport::counters(), all.members(), verbs_.regions.members(),
                ", \"chip_memory\": ", json_string(verbs_.chip.words()), ", \"ports\": [", ports, "]");
}

void VerbsTransport::meet(ChipMemory &chip) {
  if (verbs_.settings.direct)
    verbs_.chip.find_out(verbs_.ports, chip.device());
  else
    verbs_.chip.leave_out("rdma-direct is not among the paths");
}

// The parent's device: nothing is said to it here, and its descriptors are closed with the rest at exec.
void VerbsTransport::after_fork() {
  StreamTransport::after_fork();
  for (const auto &port : verbs_.ports) port->after_fork();
  verbs_.regions.after_fork();
}

}  // namespace dicomm
