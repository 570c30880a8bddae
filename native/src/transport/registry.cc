#include "transport/registry.h"

#include <algorithm>

#include "transport/loopback/transport.h"
#include "transport/shm/transport.h"
#include "transport/tcp/transport.h"

namespace dicomm {

namespace {

Status parse_paths(const std::string &text, std::vector<std::string> &out) {
  const std::vector<std::string> known = transport_names();
  for (size_t begin = 0; begin <= text.size() && !text.empty();) {
    const size_t end = std::min(text.find_first_of(">,", begin), text.size());
    const std::string name = text.substr(begin, end - begin);
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      std::string names;
      for (const std::string &one : known) names += " " + one;
      return Status::make(DICOMM_INVALID_ARGUMENT, "path '", name, "' is not one of:", names);
    }
    out.push_back(name);
    begin = end + 1;
  }
  return {};
}

}  // namespace

Status make_transports(Reactor &reactor, Sink &sink, const TransportOptions &options, Transports &out) {
  out.clear();
  std::vector<std::string> paths;
  DICOMM_TRY(parse_paths(options.paths, paths));
  const auto wanted = [&](const char *name) {
    return paths.empty() || std::find(paths.begin(), paths.end(), name) != paths.end();
  };
  StreamOptions stream;
  stream.self = options.self;
  stream.sockets_per_peer = options.sockets_per_peer;
  stream.handshake_timeout = options.handshake_timeout;
  stream.connect_timeout = options.connect_timeout;

  out.push_back(std::make_unique<LoopbackTransport>(reactor, sink, options.self.id));
  if (wanted("shm")) {
    auto shm = std::make_unique<ShmTransport>(reactor, sink, ShmOptions{stream});
    const Status opened = shm->open();
    if (opened.ok()) out.push_back(std::move(shm));
    if (!opened.ok() && !wanted("tcp")) return opened;
  }
  if (wanted("tcp")) {
    TcpOptions tcp{stream, options.interface, options.route_to};
    auto transport = std::make_unique<TcpTransport>(reactor, sink, tcp);
    DICOMM_TRY(transport->open());
    out.push_back(std::move(transport));
  }
  return {};
}

std::string addresses(const Transports &transports) {
  std::string text;
  for (const auto &transport : transports) {
    const std::string line = transport->address();
    if (line.empty()) continue;
    if (!text.empty()) text += '\n';
    text += line;
  }
  return text;
}

std::string numeric_address(const Transports &transports) {
  const std::string all = addresses(transports);
  const std::string_view line = StreamTransport::line_of(all, "tcp");
  return std::string(line.substr(0, line.find(' ')));
}

Transport *choose_transport(const Transports &transports, const PeerAddress &peer) {
  for (const auto &transport : transports)
    if (transport->reaches(peer)) return transport.get();
  return nullptr;
}

std::string place_of(const PeerAddress &peer) {
  const std::string_view place = ShmTransport::place_of(peer.address);
  return place.empty() ? concat("host ", peer.host) : concat("shm ", place);
}

std::vector<std::string> transport_names() { return {"loopback", "shm", "tcp"}; }

}  // namespace dicomm
