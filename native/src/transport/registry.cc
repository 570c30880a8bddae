#include "transport/registry.h"

#include <algorithm>
#include <utility>

#include "transport/loopback/transport.h"
#include "transport/shm/transport.h"
#include "transport/tcp/transport.h"
#include "transport/verbs/transport.h"

namespace dicomm {

namespace {

const std::vector<std::string> kPaths = {"shm", "rdma-direct", "rdma-staged", "tcp"};  // best first

Status parse_paths(const std::string &text, std::vector<std::string> &out) {
  for (size_t begin = 0; begin <= text.size() && !text.empty();) {
    const size_t end = std::min(text.find_first_of(">,", begin), text.size());
    const std::string name = text.substr(begin, end - begin);
    if (std::find(kPaths.begin(), kPaths.end(), name) == kPaths.end()) {
      std::string names;
      for (const std::string &one : kPaths) names += " " + one;
      return Status::make(DICOMM_INVALID_ARGUMENT, "path '", name, "' is not one of:", names);
    }
    if (std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
    begin = end + 1;
  }
  if (out.empty()) out = kPaths;
  return {};
}

template <class Made, class Options>
Status open(Reactor &reactor, Sink &sink, const Options &options, std::unique_ptr<Transport> &out) {
  auto made = std::make_unique<Made>(reactor, sink, options);
  DICOMM_TRY(made->open());
  out = std::move(made);
  return {};
}

}  // namespace

Status make_transports(Reactor &reactor, Sink &sink, const TransportOptions &options, Transports &out) {
  out.clear();
  std::vector<std::string> paths;
  DICOMM_TRY(parse_paths(options.paths, paths));
  const auto listed = [&](const char *name) {
    return std::find(paths.begin(), paths.end(), name) != paths.end();
  };
  StreamOptions stream;
  stream.self = options.self;
  stream.sockets_per_peer = options.sockets_per_peer;
  stream.handshake_timeout = options.handshake_timeout;
  stream.connect_timeout = options.connect_timeout;
  VerbsOptions verbs;
  static_cast<StreamOptions &>(verbs) = stream;
  verbs.interface = options.interface;
  verbs.route_to = options.route_to;
  verbs.log = options.log;
  verbs.name_of = options.name_of;
  DICOMM_TRY(parse_verbs_settings(options.rdma, verbs.settings));
  verbs.settings.direct = listed("rdma-direct");
  verbs.settings.staged = listed("rdma-staged");
  verbs.settings.tcp = listed("tcp");

  out.push_back(std::make_unique<LoopbackTransport>(reactor, sink, options.self.id));
  std::string why;
  bool rdma = false;
  for (const std::string &path : paths) {
    std::unique_ptr<Transport> made;
    Status opened;
    if (path == "shm") {
      opened = open<ShmTransport>(reactor, sink, ShmOptions{stream}, made);
    } else if (path == "tcp") {
      opened =
          open<TcpTransport>(reactor, sink, TcpOptions{stream, options.interface, options.route_to}, made);
    } else if (!std::exchange(rdma, true)) {  // one transport for both ways
      opened = open<VerbsTransport>(reactor, sink, verbs, made);
    }
    if (opened.code() == DICOMM_INVALID_ARGUMENT) return opened;
    if (!opened.ok()) why += concat(why.empty() ? "" : "; ", path, ": ", opened.failure()->text);
    if (made) out.push_back(std::move(made));
  }
  if (out.size() > 1) return {};
  return Status::make(DICOMM_NOT_SUPPORTED, "no path of those allowed (", options.paths,
                      ") can be had: ", why);
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
  std::string_view line = StreamTransport::line_of(all, "tcp");
  if (line.empty()) line = StreamTransport::line_of(all, "rdma");
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

bool share_memory(const std::vector<PeerAddress> &peers) {
  return std::ranges::all_of(peers, [&](const PeerAddress &peer) {
    return peer.address.starts_with("shm ") && place_of(peer) == place_of(peers.front());
  });
}

std::vector<std::string> transport_names() { return {"loopback", "shm", "rdma", "tcp"}; }

}  // namespace dicomm
