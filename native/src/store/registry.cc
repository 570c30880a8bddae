#include <array>

#include "store/file.h"
#include "store/tcp_client.h"
#include "store/tcp_server.h"
#include "store/wrapped.h"

namespace dicomm {
namespace {

// Serves, and is a client of its own server like any other.
class ServingStore final : public Store {
 public:
  Status open(const std::string &host, uint16_t port, const StoreOptions &options) {
    std::vector<SocketAddress> addresses;
    DICOMM_TRY(resolve(host, port, addresses));
    Status started;
    for (const SocketAddress &address : addresses) {
      server_ = std::make_unique<TcpStoreServer>();
      started = server_->start(address, options.secret);
      if (started.ok()) break;
    }
    DICOMM_TRY(started.with([](Failure &f) { f.text = "tcp store: " + f.text; }));
    client_ = std::make_unique<TcpStoreClient>(host, server_->port(), options);
    return client_->open();
  }

  Status set(std::string_view key, std::span<const std::byte> value) override {
    return client_->set(key, value);
  }
  Status get(std::string_view key, std::vector<std::byte> &value, Nanos deadline) override {
    return client_->get(key, value, deadline);
  }
  Status check(std::string_view key, bool &exists) override { return client_->check(key, exists); }
  Status add(std::string_view key, int64_t delta, int64_t &result) override {
    return client_->add(key, delta, result);
  }
  std::string url() const override { return client_->url(); }

 private:
  std::unique_ptr<TcpStoreServer> server_;
  std::unique_ptr<TcpStoreClient> client_;
};

Status open_client(const std::string &rest, const StoreOptions &options, std::unique_ptr<Store> &out) {
  std::string host;
  uint16_t port = 0;
  DICOMM_TRY(split_host_port(rest, host, port));
  if (port == 0) return Status::make(DICOMM_INVALID_ARGUMENT, "store url: a client needs the server's port");
  auto store = std::make_unique<TcpStoreClient>(host, port, options);
  DICOMM_TRY(store->open());
  out = std::move(store);
  return {};
}

Status open_server(const std::string &rest, const StoreOptions &options, std::unique_ptr<Store> &out) {
  std::string host;
  uint16_t port = 0;
  DICOMM_TRY(split_host_port(rest, host, port));
  auto store = std::make_unique<ServingStore>();
  DICOMM_TRY(store->open(host, port, options));
  out = std::move(store);
  return {};
}

Status open_file(const std::string &rest, const StoreOptions &options, std::unique_ptr<Store> &out) {
  if (rest.empty() || rest.front() != '/')
    return Status::make(DICOMM_INVALID_ARGUMENT,
                        "store url: file:// needs an absolute path, as in file:///shared/job1");
  auto store = std::make_unique<FileStore>(rest, options.timeout);
  DICOMM_TRY(store->open());
  out = std::move(store);
  return {};
}

struct Kind {
  std::string_view scheme;
  Status (*open)(const std::string &, const StoreOptions &, std::unique_ptr<Store> &);
};
constexpr std::array<Kind, 3> kKinds = {
    {{"tcp://", open_client}, {"tcp-server://", open_server}, {"file://", open_file}}};

}  // namespace

Status open_store(const std::string &url, const StoreOptions &options, std::unique_ptr<Store> &out) {
  for (const Kind &kind : kKinds)
    if (url.starts_with(kind.scheme)) return kind.open(url.substr(kind.scheme.size()), options, out);
  return Status::make(DICOMM_INVALID_ARGUMENT, "store url '", url,
                      "' is none of tcp://HOST:PORT, tcp-server://HOST:PORT, file:///PATH");
}

std::unique_ptr<Store> wrap_store(const dicomm_store_vtable &vtable, void *self) {
  return std::make_unique<WrappedStore>(vtable, self);
}

}  // namespace dicomm
