#include "comm/context.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <thread>

#include "base/json.h"
#include "base/sha256.h"
#include "comm/communicator.h"

namespace dicomm {

std::string hex(const ContextId &id) {
  static const char *digits = "0123456789abcdef";
  std::string text;
  for (const std::byte b : id) {
    text += digits[std::to_integer<unsigned>(b) >> 4];
    text += digits[std::to_integer<unsigned>(b) & 15];
  }
  return text;
}

Context::Context(ContextOptions options)
    : options_(std::move(options)),
      engine_(options_.spin < 0 ? kSpin : options_.spin),
      messenger_(options_.eager_bytes) {}

Context::~Context() {
  if (!forked()) close();
}

Status Context::open() {
  random_bytes(self_.id);
  random_bytes(self_.key);
  if (has_secret()) self_.key = key_for(self_.id, {});
  describe_host(rank_info_);
  self_.host = rank_info_.host;
  self_.process = static_cast<uint64_t>(getpid());
  DICOMM_TRY(engine_.start());
  TransportOptions transport;
  transport.self = self_;
  transport.interface = options_.interface;
  transport.route_to = options_.route_to;
  transport.paths = options_.paths;
  transport.rdma = options_.rdma;
  transport.log = [this](const std::string &line) { log(2, line); };
  transport.name_of = [this](const ContextId &id) { return name_of(id); };
  transport.sockets_per_peer = options_.sockets_per_peer;
  transport.handshake_timeout = options_.handshake_timeout;
  {
    auto lock = engine_.lock();
    DICOMM_TRY(make_transports(engine_.reactor(), messenger_, transport, transports_));
    messenger_.use(transports_);
    self_.address = addresses(transports_);
  }
  OpenedChip opened;
  DICOMM_TRY(open_chip(options_.chip, numeric_address(transports_), opened));
  rank_info_.chip = std::move(opened.info);
  ccl_ = std::move(opened.ccl);
  if (!opened.device) return {};
  chip_ = std::make_unique<Chip>(engine_, std::move(opened.device));
  DICOMM_TRY(chip_->open());
  auto lock = engine_.lock();
  for (auto &transport : transports_) transport->meet(*chip_);
  return {};
}

Key Context::key_for(const ContextId &id, const Key &published) const {
  return has_secret() ? hmac_sha256(options_.secret, {id}) : published;
}

void Context::close() {
  if (closed_) return;
  closed_ = true;
  {
    auto lock = engine_.lock();
    for (Communicator *comm : comms_)
      comm->leave(
          Status::make(DICOMM_ABORTED, "rank ", comm->rank(), " (", self_.host, ") closed its context"));
    engine_.drive(lock, deadline_after(kGoodbye), [&] {
      bool all = true;
      for (auto &transport : transports_) all = transport->shutdown() && all;
      return all;
    });
  }
  for (Communicator *comm : comms_) comm->close_lane();
  if (chip_) chip_->close(kGoodbye);
  engine_.stop();
  auto lock = engine_.lock();
  transports_.clear();
}

void Context::after_fork() {
  // The lock may be held by a thread that does not exist here; nobody else runs in this process yet.
  for (auto &transport : transports_) transport->after_fork();
  engine_.after_fork();
}

void Context::share_host(int ranks) {
  if (ranks > static_cast<int>(std::thread::hardware_concurrency())) engine_.set_crowded(true);
}

void Context::log(uint32_t level, const std::string &line) const {
  if (level > options_.log_level) return;
  const std::string text = concat("dicomm [", self_.host, " pid ", self_.process, "]: ", line, "\n");
  std::fwrite(text.data(), 1, text.size(), stderr);
}

std::string Context::name_of(const ContextId &id) const {
  for (const Communicator *comm : comms_)
    if (std::string name = comm->name_of(id); !name.empty()) return name;
  return {};
}

std::string Context::info() {
  auto lock = engine_.lock();
  std::string transports;
  for (const auto &transport : transports_) {
    transports += concat(transports.empty() ? "" : ", ", json_string(transport->name()), ": {",
                         transport->counters(), "}");
  }
  std::string chip = "null";
  if (chip_) {
    const Chip::Copied copied = chip_->copied();
    chip = concat("{\"bytes_to_host\": ", copied.to_host, ", \"bytes_to_chip\": ", copied.to_chip, "}");
  }
  return concat("{\"id\": ", json_string(hex(self_.id)), ", \"host\": ", json_string(self_.host),
                ", \"address\": ", json_string(self_.address),
                ", \"sockets_per_peer\": ", options_.sockets_per_peer,
                ", \"eager_bytes\": ", options_.eager_bytes, ", \"spin_ns\": ", engine_.spin(),
                ", \"transports\": {", transports, "}, \"chip\": ", chip, "}");
}

}  // namespace dicomm
