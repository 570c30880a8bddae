#include "model/bound.h"

#include <algorithm>
#include <functional>

#include "base/operations.h"

namespace dicomm::model {

namespace {

// The time in which a message can reach n - 1 others when everybody who has it sends it on as fast as may be.
Picoseconds spread_time(int n, Picoseconds overhead, Picoseconds latency) {
  std::vector<Picoseconds> next_send = {0};  // of each rank that knows; a heap with the earliest on top
  Picoseconds last = 0;
  for (int reached = 1; reached < n; ++reached) {
    std::pop_heap(next_send.begin(), next_send.end(), std::greater<>());
    const Picoseconds now = next_send.back();
    last = now + overhead + latency + overhead;
    next_send.back() = now + overhead;
    std::push_heap(next_send.begin(), next_send.end(), std::greater<>());
    next_send.push_back(last);
    std::push_heap(next_send.begin(), next_send.end(), std::greater<>());
  }
  return last;
}

struct Traffic {
  double sent = 0;  // bytes; an average may be a fraction
  double received = 0;
  double most() const { return std::max(sent, received); }
};

// What parties must exchange at least, a party being a rank or all ranks of a host.
class Parties {
 public:
  Parties(const std::vector<Problem> &problems, const std::vector<int> &party_of)
      : problems_(problems),
        party_of_(party_of),
        count_(*std::max_element(party_of.begin(), party_of.end()) + 1) {
    const Problem &any = problems[0];
    const double element = static_cast<double>(any.element);
    buffer_ = static_cast<double>(any.count) * element;
    works_.resize(static_cast<size_t>(count_));
    for (size_t rank = 0; rank < problems.size(); ++rank) {
      if (problems[rank].role != Problem::Role::reducer) works_[static_cast<size_t>(party_of[rank])] = true;
    }
    working_ = static_cast<int>(std::count(works_.begin(), works_.end(), true));
    blocks_.resize(static_cast<size_t>(count_));
    const Problem &knows = problems[static_cast<size_t>(any.root)];  // gather, scatter: all counts
    for (size_t rank = 0; rank < knows.counts.size(); ++rank) {
      const double bytes = static_cast<double>(knows.counts[rank]) * element;
      blocks_[static_cast<size_t>(party_of[rank])] += bytes;
      all_blocks_ += bytes;
    }
  }

  int count() const { return count_; }
  int working() const { return working_; }  // those that have data

  Traffic of(int party) const {
    if (working_ < 2 || !works_[static_cast<size_t>(party)]) return {};
    const Problem &any = problems_[0];
    const bool root = party == party_of_[static_cast<size_t>(any.root)];
    const double own = blocks_[static_cast<size_t>(party)];
    const double others = all_blocks_ - own;
    switch (any.op) {
      case DICOMM_BROADCAST:
        return root ? Traffic{buffer_, 0} : Traffic{0, buffer_};
      case DICOMM_REDUCE:
        return root ? Traffic{0, buffer_} : Traffic{buffer_, 0};
      case DICOMM_ALLREDUCE: {  // 2 (working - 1) buffers in all: of an average party
        const double each = std::max(buffer_, 2 * buffer_ * (working_ - 1) / count_);
        return {each, each};
      }
      case DICOMM_ALLGATHER:
        return {own, others};
      case DICOMM_REDUCE_SCATTER:
        return {others, own};
      case DICOMM_GATHER:
        return root ? Traffic{0, others} : Traffic{own, 0};
      case DICOMM_SCATTER:
        return root ? Traffic{others, 0} : Traffic{0, own};
      case DICOMM_ALLTOALL:
        return alltoall(party);
      default:
        return {};
    }
  }

 private:
  Traffic alltoall(int party) const {
    Traffic traffic;
    for (const Problem &problem : problems_) {
      if (party_of_[static_cast<size_t>(problem.rank)] != party) continue;
      for (size_t peer = 0; peer < problem.counts.size(); ++peer) {
        if (party_of_[peer] == party) continue;
        traffic.sent += static_cast<double>(problem.counts[peer] * problem.element);
        traffic.received += static_cast<double>(problem.recv_counts[peer] * problem.element);
      }
    }
    return traffic;
  }

  const std::vector<Problem> &problems_;
  const std::vector<int> &party_of_;
  int count_;
  int working_ = 0;
  std::vector<bool> works_;  // by party: it has workers
  double buffer_ = 0;
  double all_blocks_ = 0;
  std::vector<double> blocks_;  // per party
};

void raise(Bound &bound, double seconds, std::string reason) {
  const Picoseconds time = static_cast<Picoseconds>(seconds * 1e12);
  if (time > bound.time) bound = {time, std::move(reason)};
}

}  // namespace

Bound lower_bound(const std::vector<Problem> &problems, const Topology &topology, const Machine &machine) {
  const int n = static_cast<int>(problems.size());
  const auto reducers = std::ranges::count(problems, Problem::Role::reducer, &Problem::role);
  const int workers = n - static_cast<int>(reducers);
  Bound bound{0, "nothing to do"};
  if (workers < 2) return bound;
  std::vector<int> hosts, ranks;
  for (const RankInfo &rank : topology.ranks) {
    hosts.push_back(rank.host_index);
    ranks.push_back(static_cast<int>(ranks.size()));
  }
  const Parties by_host(problems, hosts);
  const Parties by_rank(problems, ranks);
  const bool several = by_host.count() > 1;
  const bool shared = by_host.count() < n;  // some host has two ranks
  const bool local_is_quicker = shared && (!several || machine.local_latency < machine.remote_latency);
  const double quickest = local_is_quicker ? machine.local_latency : machine.remote_latency;

  bound = {spread_time(workers, machine.overhead_time(), machine.latency(!local_is_quicker)),
           "word of one rank must reach all others"};
  if (by_host.working() > 1) {
    raise(bound, machine.remote_latency + 2 * machine.overhead, "a message must go from host to host");
    for (int host = 0; host < by_host.count(); ++host) {
      const double most = by_host.of(host).most();
      raise(bound, most / machine.nic_bandwidth + machine.remote_latency + 2 * machine.overhead,
            concat(static_cast<uint64_t>(most), " bytes must pass the NIC of host ", host));
    }
  }
  const double rate = std::max(shared ? machine.local_bandwidth : 0, several ? machine.remote_bandwidth : 0);
  for (int rank = 0; rank < n; ++rank) {
    const double most = by_rank.of(rank).most();
    raise(bound, most / rate + quickest + 2 * machine.overhead,
          concat("rank ", rank, " must send or receive ", static_cast<uint64_t>(most), " bytes"));
  }
  if (is_reduction(problems[0].op)) {
    const Problem &any = problems[0];
    double bytes = static_cast<double>(any.count * any.element);
    if (any.op == DICOMM_REDUCE_SCATTER) {
      bytes = 0;
      for (uint64_t count : any.counts) bytes += static_cast<double>(count * any.element);
    }
    raise(bound, bytes * (workers - 1) / n / machine.reduce_bandwidth,
          concat("ranks must combine ", static_cast<uint64_t>(bytes * (workers - 1)), " bytes"));
  }
  return bound;
}

}  // namespace dicomm::model
