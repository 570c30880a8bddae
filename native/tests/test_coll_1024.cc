// Every algorithm on symbolic data (simulate.h) at 1,024 ranks on hosts of 1 to 16, one host after the other
// and interleaved: the size at which nobody runs them for a test.
#include <doctest/doctest.h>

#include <string>

#include "base/operations.h"
#include "layouts.h"
#include "simulate.h"

using namespace dicomm;

namespace {

constexpr int kRanks = 1024;

// Where reducers help: every fifth rank.
bool helps(int rank) { return rank % 5 == 2; }

Topology with_reducers(Topology topology) {
  for (int rank = 0; rank < kRanks; ++rank) {
    if (helps(rank)) topology.ranks[static_cast<size_t>(rank)].chip.role = "reducer";
  }
  return topology;
}

using Role = Problem::Role;
using Libraries = Problem::Libraries;

bool takes(const Algorithm &algorithm, Role role, Libraries libraries) {
  Problem p;
  p.op = algorithm.op;
  p.role = role;
  p.libraries = libraries;
  return algorithm.fits(p);
}

// A few elements per rank, zero among them: what is wrong with a schedule shows with few as well.
std::vector<Problem> problems(const Algorithm &algorithm, int root, bool widened, bool helped) {
  const auto block = [](int from, int to) { return static_cast<uint64_t>((from * 3 + to * 5) % 3); };
  std::vector<Problem> out;
  for (int rank = 0; rank < kRanks; ++rank) {
    Problem p;
    p.op = algorithm.op;
    p.rank = rank;
    p.size = kRanks;
    p.root = root;
    p.element = 2;
    p.widened = widened;
    if (helped) p.role = helps(rank) ? Role::reducer : Role::worker;
    p.count = std::string(algorithm.name) == "gather_all" ? 2 : 1100;  // which holds every rank's input
    for (int i = 0; i < kRanks; ++i) {
      p.counts.push_back(block(p.op == DICOMM_ALLTOALL ? rank : 0, i));
      p.recv_counts.push_back(block(i, rank));
    }
    out.push_back(p);
  }
  return out;
}

void check(const Algorithm &algorithm, const simulate::Job &job, std::mt19937 &random) {
  CAPTURE(algorithm.name);
  CAPTURE(job.in_place);
  REQUIRE(simulate::check_statically(job) == "");
  REQUIRE(simulate::execute(job, random) == "");
}

size_t steps(const simulate::Job &job) {
  size_t count = 0;
  for (const Schedule &schedule : job.schedules) count += schedule.steps.size();
  return count;
}

// On interleaved hosts, in place and with the wider accumulator; where that is quick, also on hosts one after
// the other, out of place and without.
void check(dicomm_opcode op) {
  std::mt19937 random(20240609);
  const Topology mixed = interleaved(uneven_1024_hosts());
  const Topology apart = layout(uneven_1024_hosts());
  for (const Algorithm &algorithm : algorithms()) {
    if (algorithm.op != op) continue;
    const bool helped = takes(algorithm, Role::worker, Libraries::several) &&
                        !takes(algorithm, Role::peer, Libraries::several);
    // The others are `two_level` with groups that give nothing, and as slow here; test_reducers.cc has them.
    if (helped && std::string(algorithm.name) != "workers") continue;
    const auto job = [&](int root, bool widened, const Topology &topology, bool in_place) {
      return simulate::make_job(algorithm, problems(algorithm, root, widened, helped),
                                helped ? with_reducers(topology) : topology, in_place);
    };
    const auto hard = job(700, is_reduction(op), mixed, true);
    check(algorithm, hard, random);
    if (steps(hard) > 1'000'000) continue;
    check(algorithm, job(0, false, apart, false), random);
  }
}

}  // namespace

TEST_CASE("barrier at 1024 ranks") { check(DICOMM_BARRIER); }
TEST_CASE("broadcast at 1024 ranks") { check(DICOMM_BROADCAST); }
TEST_CASE("allreduce at 1024 ranks") { check(DICOMM_ALLREDUCE); }
TEST_CASE("reduce at 1024 ranks") { check(DICOMM_REDUCE); }
TEST_CASE("allgather at 1024 ranks") { check(DICOMM_ALLGATHER); }
TEST_CASE("reduce_scatter at 1024 ranks") { check(DICOMM_REDUCE_SCATTER); }
TEST_CASE("alltoall at 1024 ranks") { check(DICOMM_ALLTOALL); }
TEST_CASE("gather at 1024 ranks") { check(DICOMM_GATHER); }
TEST_CASE("scatter at 1024 ranks") { check(DICOMM_SCATTER); }
