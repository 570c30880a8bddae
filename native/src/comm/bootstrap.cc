#include "comm/bootstrap.h"

#include <algorithm>
#include <bit>

#include "base/bytes.h"
#include "base/sha256.h"
#include "comm/hello.h"

namespace dicomm {

namespace {

constexpr int kMaxRanks = 1 << 20;
// How long after its own deadline rank 0's verdict may still come: it waits as long as the others do.
constexpr Nanos kGrace = 2 * kSecond;

std::string join(const std::vector<int> &ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

Status missing(const std::vector<int> &ranks, int size, Nanos waited) {
  return Status(
      Failure{.code = DICOMM_TIMED_OUT,
              .text = concat(ranks.size() == 1 ? "rank " : "ranks ", join(ranks), " of ", size,
                             " did not come within ", static_cast<double>(waited / kMillisecond) / 1000,
                             " s; check that every process was started and reaches the store"),
              .peer = ranks.empty() ? -1 : ranks.front(),
              .waited_ns = waited});
}

class Rendezvous {
 public:
  Rendezvous(Context &context, Store &store, std::string prefix, int rank, int size, Nanos deadline)
      : context_(context),
        store_(store),
        prefix_(std::move(prefix)),
        rank_(rank),
        size_(size),
        deadline_(deadline) {}

  Status run(Communicator::Setup &setup) {
    const Hello mine{context_.self(), context_.has_secret(), context_.rank_info()};
    DICOMM_TRY(store_.set(key(rank_), write_hello(mine)));
    std::vector<std::byte> verdict;
    if (rank_ == 0) {
      DICOMM_TRY(collect(verdict));
    } else {
      const Status got =
          store_.get(prefix_ + "/all", verdict, deadline_ == kNever ? kNever : deadline_ + kGrace);
      if (got.code() == DICOMM_TIMED_OUT) return name_missing();
      DICOMM_TRY(got);
    }
    return read(verdict, setup);
  }

 private:
  std::string key(int rank) const { return concat(prefix_, "/rank/", rank); }

  // Rank 0: everybody's record into one, so that each rank needs two calls to the store whatever the size.
  Status collect(std::vector<std::byte> &verdict) {
    uint64_t id = 0;
    random_bytes(std::as_writable_bytes(std::span(&id, 1)));
    ByteWriter writer;
    writer.put(uint8_t{1}).put(id).put(uint32_t(size_));
    std::vector<int> absent;
    for (int r = 0; r < size_; ++r) {
      std::vector<std::byte> record;
      const Status got = store_.get(key(r), record, deadline_);
      if (got.code() == DICOMM_TIMED_OUT) {
        absent.push_back(r);
        continue;
      }
      DICOMM_TRY(got);
      writer.text(std::string(reinterpret_cast<const char *>(record.data()), record.size()));
    }
    verdict = writer.take();
    if (absent.empty()) return store_.set(prefix_ + "/all", verdict);
    ByteWriter bad;
    bad.put(uint8_t{0}).put(uint32_t(absent.size()));
    for (const int r : absent) bad.put(uint32_t(r));
    DICOMM_TRY(store_.set(prefix_ + "/all", bad.take()));
    return missing(absent, size_, now() - started_);
  }

  // Rank 0 itself is late or gone: say who is there by looking.
  Status name_missing() {
    std::vector<int> absent;
    for (int r = 0; r < size_; ++r) {
      bool exists = false;
      DICOMM_TRY(store_.check(key(r), exists));
      if (!exists) absent.push_back(r);
    }
    if (absent.empty()) absent.push_back(0);
    return missing(absent, size_, now() - started_);
  }

  Status read(std::span<const std::byte> verdict, Communicator::Setup &setup) const {
    ByteReader reader(verdict);
    const bool complete = reader.get<uint8_t>() == 1;
    if (!complete) {
      std::vector<int> absent(std::min<uint32_t>(reader.get<uint32_t>(), kMaxRanks));
      for (int &r : absent) r = static_cast<int>(reader.get<uint32_t>());
      return missing(absent, size_, now() - started_);
    }
    setup.id = reader.get<uint64_t>();
    const auto size = reader.get<uint32_t>();
    if (size != static_cast<uint32_t>(size_)) {
      return Status::make(DICOMM_INVALID_ARGUMENT, "rank 0 makes a communicator of ", size,
                          " ranks and this rank one of ", size_);
    }
    std::vector<RankInfo> records;
    for (int r = 0; r < size_; ++r) {
      const std::string record = reader.text();
      Hello hello;
      DICOMM_TRY(read_hello(r, std::as_bytes(std::span(record)), hello));
      DICOMM_TRY(check_secret(r, hello));
      hello.address.key = context_.key_for(hello.address.id, hello.address.key);
      setup.peers.push_back(std::move(hello.address));
      records.push_back(std::move(hello.info));
    }
    if (setup.peers[static_cast<size_t>(rank_)].id != context_.self().id) {
      return Status::make(DICOMM_INVALID_ARGUMENT, "two processes call themselves rank ", rank_, " under '",
                          prefix_, "'; ranks and key prefixes must be unique");
    }
    return topology_of(setup.peers, std::move(records), setup.topology);
  }

  Status check_secret(int rank, const Hello &hello) const {
    if (hello.keyed == context_.has_secret()) return {};
    return Status::make(DICOMM_INVALID_ARGUMENT, "rank ", rank, " (", hello.address.host, ") has ",
                        hello.keyed ? "a" : "no", " job secret and this rank has ",
                        hello.keyed ? "none" : "one", "; give all ranks the same DICOMM_SECRET or none");
  }

  Context &context_;
  Store &store_;
  const std::string prefix_;
  const int rank_, size_;
  const Nanos deadline_;
  const Nanos started_ = now();
};

}  // namespace

Status topology_of(const std::vector<PeerAddress> &peers, std::vector<RankInfo> records, Topology &out) {
  std::vector<std::string> places;
  for (const PeerAddress &peer : peers) places.push_back(place_of(peer));
  const std::vector<int> numbers = number_in_order(places);
  for (size_t r = 0; r < numbers.size(); ++r) records[r].host_index = numbers[r];
  out.ranks = std::move(records);
  return form_islands(out);
}

Status bootstrap(Context &context, Store &store, const std::string &prefix, int rank, int size,
                 Nanos deadline, Communicator::Setup &setup) {
  if (size < 1 || size > kMaxRanks || rank < 0 || rank >= size) {
    return Status::make(DICOMM_INVALID_ARGUMENT, "rank ", rank, " of ", size, " ranks");
  }
  setup.rank = rank;
  DICOMM_TRY(Rendezvous(context, store, prefix, rank, size, deadline).run(setup));
  // By name, not by place: ranks in several network namespaces of one machine share its cores.
  const std::string &name = setup.peers[static_cast<size_t>(rank)].host;
  context.share_host(static_cast<int>(std::ranges::count(setup.peers, name, &PeerAddress::host)));
  return {};
}

}  // namespace dicomm
