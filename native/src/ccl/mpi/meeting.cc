#include "ccl/mpi/meeting.h"

#include <algorithm>
#include <cstring>

#include "base/sha256.h"

namespace dicomm::mpi {

namespace {

constexpr char kMagic[8] = {'d', 'i', 'c', 'o', 'm', 'm', 'p', 'i'};
constexpr Nanos kCancel = kSecond;

// Tags that every MPI has, from the upper half: programs number theirs from 0.
constexpr int32_t kFirstTag = 16384, kTags = 16382;

struct Report {
  uint64_t nonce;
  int32_t rank, world_rank, size;
};

struct Answer {
  uint64_t nonce;
  int32_t twice[2];  // ranks of one process; equal where there are none
};

// Bytes that MPI reads or writes until the request is done.
class Message {
 public:
  explicit Message(size_t bytes) : data_(bytes) {}
  Status send(const Library &library, int to, int tag) {
    return library.failure(
        library.call.Isend(data_.data(), static_cast<int>(data_.size()), library.abi.dtypes[DICOMM_UINT8], to,
                           tag, library.abi.world, &requests_.emplace_back(0)),
        "Isend");
  }
  Status receive(const Library &library, int from, int tag) {
    return library.failure(
        library.call.Irecv(data_.data(), static_cast<int>(data_.size()), library.abi.dtypes[DICOMM_UINT8],
                           from, tag, library.abi.world, &requests_.emplace_back(0)),
        "Irecv");
  }
  // What has not come by the deadline is called off.
  Status wait(const Library &library, Nanos deadline) {
    const auto never = [] { return false; };
    const Status status = wait_all(library, requests_, deadline, never);
    if (requests_.empty()) return status;
    library.call.Cancel(&requests_.front());
    static_cast<void>(wait_all(library, requests_, deadline_after(kCancel), never));
    if (!requests_.empty()) new std::vector<std::byte>(std::move(data_));  // MPI's for ever
    return status;
  }
  template <class T>
  T get(size_t at = 0) const {
    T value;
    std::memcpy(&value, data_.data() + at, sizeof value);
    return value;
  }
  template <class T>
  void put(const T &value, size_t at = 0) {
    std::memcpy(data_.data() + at, &value, sizeof value);
  }

 private:
  std::vector<std::byte> data_;
  std::vector<Handle> requests_;  // one
};

Status nobody_is_twice(const Answer &answer) {
  if (answer.twice[0] == answer.twice[1]) return {};
  return Status::make(DICOMM_INVALID_ARGUMENT, "ranks ", answer.twice[0], " and ", answer.twice[1],
                      " of the group are one process, and MPI counts processes: start each rank as one");
}

Status gather(const Library &library, const Id &id, int rank, int size, Nanos deadline,
              std::vector<int> &world_ranks) {
  world_ranks.assign(static_cast<size_t>(size), -1);
  world_ranks[static_cast<size_t>(rank)] = library.world_rank;
  std::vector<int> to;
  Answer answer{id.nonce, {0, 0}};
  while (static_cast<int>(to.size()) < size - 1) {
    Message message(sizeof(Report));
    DICOMM_TRY(message.receive(library, library.abi.any_source, id.tag));
    DICOMM_TRY(message.wait(library, deadline));
    const auto report = message.get<Report>();
    if (report.nonce != id.nonce) continue;
    const auto place = static_cast<size_t>(report.rank);
    if (report.size != size || report.rank < 0 || report.rank >= size || world_ranks[place] >= 0)
      return Status::make(DICOMM_INVALID_ARGUMENT, "process ", report.world_rank,
                          " of MPI_COMM_WORLD comes as rank ", report.rank, " of ", report.size,
                          " to a group of ", size);
    const auto same = std::find(world_ranks.begin(), world_ranks.end(), report.world_rank);
    if (same != world_ranks.end()) {
      answer.twice[0] = static_cast<int32_t>(same - world_ranks.begin());
      answer.twice[1] = report.rank;
    }
    world_ranks[place] = report.world_rank;
    to.push_back(report.world_rank);
  }
  for (const int other : to) {
    Message message(sizeof answer + sizeof(int) * static_cast<size_t>(size));
    message.put(answer);
    for (size_t r = 0; r < world_ranks.size(); ++r)
      message.put(world_ranks[r], sizeof answer + r * sizeof(int));
    DICOMM_TRY(message.send(library, other, id.tag + 1));
    DICOMM_TRY(message.wait(library, deadline));
  }
  return nobody_is_twice(answer);
}

Status report(const Library &library, const Id &id, int rank, int size, Nanos deadline,
              std::vector<int> &world_ranks) {
  Message mine(sizeof(Report));
  mine.put(Report{id.nonce, rank, library.world_rank, size});
  DICOMM_TRY(mine.send(library, id.world_rank, id.tag));
  DICOMM_TRY(mine.wait(library, deadline));
  for (;;) {
    Message message(sizeof(Answer) + sizeof(int) * static_cast<size_t>(size));
    DICOMM_TRY(message.receive(library, id.world_rank, id.tag + 1));
    DICOMM_TRY(message.wait(library, deadline));
    const auto answer = message.get<Answer>();
    if (answer.nonce != id.nonce) continue;
    for (int r = 0; r < size; ++r)
      world_ranks.push_back(message.get<int>(sizeof answer + static_cast<size_t>(r) * sizeof(int)));
    return nobody_is_twice(answer);
  }
}

}  // namespace

Id Id::make(const Library &library) {
  Id id{};
  std::memcpy(id.magic, kMagic, sizeof kMagic);
  random_bytes(std::as_writable_bytes(std::span(&id.nonce, 1)));
  id.world_rank = library.world_rank;
  id.world_size = library.world_size;
  id.tag = kFirstTag + static_cast<int32_t>(id.nonce % kTags);
  return id;
}

bool Id::valid() const {
  return std::memcmp(magic, kMagic, sizeof kMagic) == 0 && world_rank >= 0 && world_rank < world_size &&
         tag >= kFirstTag && tag < kFirstTag + kTags;
}

Status meet(const Library &library, const Id &id, int rank, int size, Nanos deadline,
            std::vector<int> &world_ranks) {
  world_ranks.clear();
  if (library.world_rank == id.world_rank) return gather(library, id, rank, size, deadline, world_ranks);
  return report(library, id, rank, size, deadline, world_ranks);
}

}  // namespace dicomm::mpi
