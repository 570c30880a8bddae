// The client of a tcp store: one connection, made again when it was lost or out of step.
#pragma once

#include "base/net.h"
#include "store/store.h"
#include "store/wire.h"

namespace dicomm {

class TcpStoreClient final : public Store {
 public:
  TcpStoreClient(std::string host, uint16_t port, StoreOptions options);
  // Connects; the server may come up until options.timeout has passed.
  Status open();

  Status set(std::string_view key, std::span<const std::byte> value) override;
  Status get(std::string_view key, std::vector<std::byte> &value, Nanos deadline) override;
  Status check(std::string_view key, bool &exists) override;
  Status add(std::string_view key, int64_t delta, int64_t &result) override;
  std::string url() const override { return "tcp://" + join_host_port(host_, port_); }

 private:
  Status connect(Nanos deadline);
  Status connect_once(const SocketAddress &address, Nanos deadline);
  Status request(StoreOp op, std::string_view key, std::span<const std::byte> value, Nanos deadline,
                 std::vector<std::byte> &reply);
  Status exchange(const StoreRequest &head, std::string_view key, std::span<const std::byte> value,
                  Nanos deadline, std::vector<std::byte> &reply, bool &in_step);
  Status write_all(std::span<const std::byte> bytes, Nanos deadline);
  Status read_all(std::span<std::byte> bytes, Nanos deadline);
  Status wait_for(short events, Nanos deadline);
  std::string name() const { return "store at " + join_host_port(host_, port_); }

  const std::string host_;
  const uint16_t port_;
  const StoreOptions options_;
  UniqueFd fd_;
  uint64_t id_ = 0;
};

}  // namespace dicomm
