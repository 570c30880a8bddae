// Ranks as threads: each with a Context of its own in this process, meeting in a file store.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "dicomm/dicomm.h"
#include "doctest/doctest.h"

namespace dicomm::test {

inline constexpr int64_t kSecondNs = 1000000000;

// What a test wants of its ranks' contexts beyond the usual.
using Adjust = std::function<void(int rank, dicomm_context_options &options)>;

// One rank's hold on the library, closed in order at the end of its scope.
class Rank {
 public:
  Rank(const std::string &folder, int rank, int size, uint32_t sockets = 1, const char *algorithms = "",
       const Adjust &adjust = {}) {
    dicomm_store_options store_options{};
    store_options.size = sizeof store_options;
    REQUIRE(dicomm_store_open(("file://" + folder).c_str(), &store_options, &store_) == DICOMM_OK);
    dicomm_context_options context{};
    context.size = sizeof context;
    context.interface = "127.0.0.1";
    context.sockets_per_peer = sockets;
    context.spin_ns = -1;
    if (adjust) adjust(rank, context);
    REQUIRE(dicomm_context_create(&context, &context_) == DICOMM_OK);
    dicomm_comm_options options{};
    options.size = sizeof options;
    options.name = "world";
    options.algorithms = algorithms;
    options.timeout_ns = 20 * kSecondNs;
    options.init_timeout_ns = 20 * kSecondNs;
    const auto made = dicomm_comm_create(context_, store_, "test", rank, size, &options, &comm);
    if (made != DICOMM_OK) MESSAGE(error());
    REQUIRE(made == DICOMM_OK);
  }
  ~Rank() {
    dicomm_comm_close(comm);
    dicomm_context_close(context_);
    dicomm_store_close(store_);
  }
  static std::string error() {
    dicomm_error e;
    dicomm_last_error(&e);
    return e.message;
  }
  void close_context() {
    dicomm_context_close(context_);
    context_ = nullptr;
  }

  std::string context_info() const {
    std::string text(dicomm_context_info(context_, nullptr, 0) + 256, 0);
    dicomm_context_info(context_, text.data(), text.size());
    return text;
  }

  dicomm_comm *comm = nullptr;

 private:
  dicomm_store *store_ = nullptr;
  dicomm_context *context_ = nullptr;
};

// Calls body(Rank &, rank) on `size` threads and returns when all have.
inline void run_ranks(int size, const std::function<void(Rank &, int)> &body, uint32_t sockets = 1,
                      const char *algorithms = "", const Adjust &adjust = {}) {
  char folder[] = "/tmp/dicomm-test-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      Rank rank(folder, r, size, sockets, algorithms, adjust);
      body(rank, r);
    });
  }
  for (auto &thread : threads) thread.join();
  std::filesystem::remove_all(folder);
}

template <class T>
dicomm_block block(std::vector<T> &values) {
  return {values.data(), static_cast<int64_t>(values.size()), nullptr};
}

inline dicomm_op op(dicomm_opcode code, dicomm_dtype dtype) {
  dicomm_op made{};
  made.size = sizeof made;
  made.opcode = code;
  made.dtype = dtype;
  made.timeout_ns = DICOMM_TIMEOUT_DEFAULT;
  return made;
}

// Starts, waits, frees.
inline dicomm_status finish(dicomm_comm *comm, const dicomm_op &operation) {
  dicomm_request *request = nullptr;
  const dicomm_status started = dicomm_start(comm, &operation, &request);
  if (started != DICOMM_OK) return started;
  const dicomm_status status = dicomm_request_wait(request, DICOMM_TIMEOUT_NEVER);
  dicomm_request_free(request);
  return status;
}

}  // namespace dicomm::test
