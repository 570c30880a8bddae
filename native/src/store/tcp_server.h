// The server of a tcp store, in a thread of its own.
//
// Reads nothing but the handshake from strangers, at most kMaxStrangers of them at once. Memory is bounded:
// keys, values, and one request or reply per client. A client's next request is read when its last reply has
// left.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/handshake.h"
#include "base/net.h"
#include "store/store.h"
#include "store/wire.h"

namespace dicomm {

class TcpStoreServer {
 public:
  static constexpr size_t kMaxStrangers = 64;
  static constexpr size_t kMaxClients = 65536;
  static constexpr size_t kMaxKeys = 1 << 20;
  static constexpr size_t kMaxBytes = size_t{1} << 30;  // keys and values together

  TcpStoreServer();
  ~TcpStoreServer();  // ends the thread
  TcpStoreServer(const TcpStoreServer &) = delete;

  Status start(SocketAddress address, const std::vector<std::byte> &secret);
  uint16_t port() const { return address_.port(); }

 private:
  using Value = std::shared_ptr<const std::vector<std::byte>>;
  struct Client;
  using Clients = std::list<Client>;

  void run();
  int next_timeout() const;
  void expire_strangers();
  void accept_clients();
  void pause_accepting(Nanos until);
  void drop(Clients::iterator client);
  bool serve(Clients::iterator client);  // false: drop it
  bool greet(Clients::iterator client);
  bool read_requests(Clients::iterator client);
  bool begin_request(Client &client);
  void carry_out(Client &client);
  void reply(Client &client, uint64_t id, dicomm_status status, std::span<const std::byte> bytes);
  bool flush(Client &client);
  void store(Client &client, std::string key, std::vector<std::byte> value,
             std::span<const std::byte> answer);

  SocketAddress address_;
  std::vector<std::byte> secret_;
  UniqueFd listener_;
  UniqueFd epoll_;
  UniqueFd stop_;
  Nanos accept_again_ = 0;  // 0: accepting
  Clients strangers_;       // oldest first
  Clients clients_;
  std::unordered_map<std::string, Value> values_;
  size_t bytes_ = 0;
  std::multimap<std::string, Client *> waiting_;
  std::thread thread_;
};

}  // namespace dicomm
