// What a group holds of the ABI: a store to meet in, a context, a communicator. Work that is enqueued keeps
// it, too: it ends when the last of both goes.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "ccl/ccl.h"

namespace dicomm {

class SimCclSession {
 public:
  // What an id carries.
  struct Meeting {
    std::string url;     // of a tcp store that lives until all have met
    std::string secret;  // which keeps all others out
  };
  static constexpr size_t kSecretBytes = 32;

  SimCclSession(std::string library, std::string brand, int rank_, int size_)
      : rank(rank_), size(size_), library_(std::move(library)), brand_(std::move(brand)) {}
  ~SimCclSession();
  SimCclSession(const SimCclSession &) = delete;

  // Meets the others and refuses those of another brand. served: the store if it is served from here, which
  // becomes ours, or null.
  Status join(const Meeting &meeting, dicomm_store *served, const std::string &address, Nanos deadline);

  // All ranks are there; TIMED_OUT when they are not in time.
  Status barrier(Nanos deadline);
  // Pieces of work that use the communicator are counted.
  void work_begins();
  void work_ended();
  bool drain(Nanos deadline);
  Status error() const;          // what went wrong first
  void fail(const Status &why);  // and frees what waits, here and on the other ranks
  Status request_error(dicomm_request *request) const;
  Status last_error() const;  // of the ABI's last call on this thread

  const int rank;
  const int size;
  dicomm_comm *comm = nullptr;

 private:
  Status check_brands(bool serves, Nanos deadline) const;
  Status read(const std::string &key, int of, std::string &value, Nanos deadline) const;

  const std::string library_;
  const std::string brand_;
  dicomm_store *store_ = nullptr;
  dicomm_context *context_ = nullptr;
  mutable std::mutex mutex_;
  std::condition_variable idle_;
  int working_ = 0;
  Status failed_;
};

// A store for ids: served in this process on a free port of `address`.
Status serve_sim_store(const std::string &library, const std::string &address, const std::string &secret,
                       dicomm_store *&out);

}  // namespace dicomm
