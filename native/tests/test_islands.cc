// The algorithms that know islands, and host schedules for buffers on chips: many layouts on symbolic data,
// and the bytes that cross between islands.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "base/operations.h"
#include "coll_cases.h"
#include "simulate.h"

using namespace dicomm;
using simulate::Case;
using simulate::problems;

namespace {

// A rank per letter: capitals are chips of a vendor with a library, small letters processors of a host.
const std::string kLayouts[] = {"AA",      "AABB",   "ABAB",    "AAB",      "ABB",
                                "BAAA",    "AABC",   "ABCABC",  "AAaa",     "aAbAb",
                                "AAABBCa", "AaBbAB", "AABBCCD", "AAAAABBB", "AABBCCDD"};

Topology topology_of(const std::string &layout) {
  std::vector<int> hosts;
  std::vector<std::string> words;
  for (const char c : layout) {
    hosts.push_back(std::islower(c) ? c : 0);
    words.emplace_back(1, std::isupper(c) ? c : '-');
  }
  Topology topology = topology_of_hosts(hosts);
  const std::vector<int> islands = number_in_order(words);
  for (size_t r = 0; r < words.size(); ++r) {
    RankInfo &rank = topology.ranks[r];
    rank.island_index = islands[r];
    if (words[r] != "-") {
      rank.chip.vendor = words[r];
      rank.chip.library = words[r] + "-ccl";
    }
  }
  return topology;
}

std::vector<bool> chips_of(const std::string &layout) {
  std::vector<bool> out;
  for (const char c : layout) out.push_back(std::isupper(c) != 0);
  return out;
}

std::vector<Case> cases(dicomm_opcode op, int size) {
  const bool rooted =
      op == DICOMM_BROADCAST || op == DICOMM_REDUCE || op == DICOMM_GATHER || op == DICOMM_SCATTER;
  std::vector<Case> out;
  for (const int root : rooted ? std::vector<int>{0, size / 2, size - 1} : std::vector<int>{0}) {
    for (const bool widened : {false, true}) {
      if (widened && !is_reduction(op)) continue;
      for (const uint64_t count : {0, 1, 7}) out.push_back({size, count, false, root, widened, 2});
      // Elements so large that each is a piece, and more of them than slots.
      const bool blocks = op >= DICOMM_ALLGATHER;
      out.push_back({size, blocks ? uint64_t{13} : uint64_t{60}, false, root, widened, size_t{1} << 20});
      if (blocks) out.push_back({size, 12, true, root, widened, size_t{1} << 20});
    }
  }
  return out;
}

void check_layouts(dicomm_opcode op) {
  std::mt19937 random(20261130);
  for (const std::string &layout : kLayouts) {
    CAPTURE(layout);
    const Topology topology = topology_of(layout);
    const bool one = topology.islands() == 1;
    for (const Case &c : cases(op, topology.size())) {
      enum Kind { plain, scaled, encoded };
      for (const Kind kind : {plain, scaled, encoded}) {
        if (kind != plain && !is_reduction(op)) continue;
        if (kind == encoded && c.widened) continue;
        std::vector<Problem> ranks = problems(op, c);
        for (Problem &p : ranks) {
          p.scaled = kind == scaled;
          if (kind == encoded) p.wire = DICOMM_BFLOAT16;
          p.libraries = one ? Problem::Libraries::one : Problem::Libraries::several;
        }
        for (const Algorithm &algorithm : algorithms()) {
          if (algorithm.op != op) continue;
          simulate::check(algorithm, ranks, topology, random, chips_of(layout));
        }
      }
    }
  }
}

uint64_t bytes_of(const Problem &p, const Span &span) {
  return span.count * (simulate::wide(p, span.space) ? sizeof(float) : p.element);
}

// What leaves each island, and each rank, for other islands.
struct Crossed {
  std::vector<uint64_t> island, rank;
};

Crossed crossed(dicomm_opcode op, const std::string &layout, const Case &c) {
  const Topology topology = topology_of(layout);
  std::vector<Problem> ranks = problems(op, c);
  for (Problem &p : ranks) p.libraries = Problem::Libraries::several;
  const auto job = simulate::make_job(*find_algorithm(op, "islands"), ranks, topology, false);
  Crossed out{std::vector<uint64_t>(static_cast<size_t>(topology.islands())),
              std::vector<uint64_t>(ranks.size())};
  for (size_t r = 0; r < ranks.size(); ++r) {
    for (const Step &step : job.schedules[r].steps) {
      if (step.kind != StepKind::send) continue;
      out.rank[r] += bytes_of(ranks[r], step.a);
      out.island[static_cast<size_t>(job.island_of[r])] += bytes_of(ranks[r], step.a);
    }
  }
  return out;
}

}  // namespace

TEST_CASE("barrier on islands") { check_layouts(DICOMM_BARRIER); }
TEST_CASE("broadcast on islands") { check_layouts(DICOMM_BROADCAST); }
TEST_CASE("allreduce on islands") { check_layouts(DICOMM_ALLREDUCE); }
TEST_CASE("reduce on islands") { check_layouts(DICOMM_REDUCE); }
TEST_CASE("allgather on islands") { check_layouts(DICOMM_ALLGATHER); }
TEST_CASE("reduce_scatter on islands") { check_layouts(DICOMM_REDUCE_SCATTER); }
TEST_CASE("alltoall on islands") { check_layouts(DICOMM_ALLTOALL); }
TEST_CASE("gather on islands") { check_layouts(DICOMM_GATHER); }
TEST_CASE("scatter on islands") { check_layouts(DICOMM_SCATTER); }

TEST_CASE("every island's ranks share what crosses, and each byte crosses once") {
  constexpr uint64_t kBytes = 32 << 20;
  for (const std::string layout : {"AABB", "ABAB", "AAAABBBB", "AAAB"}) {
    CAPTURE(layout);
    const int size = static_cast<int>(layout.size());
    const Case whole{size, kBytes / 4, false, 0, false, 4};
    const Case blocks{size, kBytes / 4 / static_cast<uint64_t>(size), false, 0, false, 4};
    const auto a = static_cast<uint64_t>(std::count(layout.begin(), layout.end(), 'A'));
    const uint64_t block = 4 * blocks.count, b = static_cast<uint64_t>(size) - a;
    CHECK(crossed(DICOMM_ALLREDUCE, layout, whole).island == std::vector<uint64_t>{kBytes, kBytes});
    CHECK(crossed(DICOMM_BROADCAST, layout, whole).island == std::vector<uint64_t>{kBytes, 0});
    CHECK(crossed(DICOMM_REDUCE, layout, whole).island[1] == kBytes);
    CHECK(crossed(DICOMM_ALLGATHER, layout, blocks).island == std::vector<uint64_t>{a * block, b * block});
    CHECK(crossed(DICOMM_REDUCE_SCATTER, layout, blocks).island ==
          std::vector<uint64_t>{b * block, a * block});
    const Crossed shares = crossed(DICOMM_ALLREDUCE, layout, whole);
    for (size_t r = 0; r < layout.size(); ++r) {
      const uint64_t share = kBytes / (layout[r] == 'A' ? a : b);
      CHECK(shares.rank[r] >= share - (1 << 20));
      CHECK(shares.rank[r] <= share + (1 << 20));
    }
  }
}

TEST_CASE("what an island needs of host and chip does not grow with the buffer") {
  for (const dicomm_opcode op :
       {DICOMM_ALLREDUCE, DICOMM_REDUCE, DICOMM_REDUCE_SCATTER, DICOMM_ALLGATHER, DICOMM_BROADCAST}) {
    CAPTURE(op);
    for (const bool widened : {false, true}) {
      for (const uint64_t count : {16 << 20, 64 << 20}) {
        std::vector<Problem> ranks =
            problems(op, {4, op >= DICOMM_ALLGATHER ? count / 4 : count, false, 0,
                          widened && is_reduction(op), widened ? size_t{2} : size_t{4}});
        for (Problem &p : ranks) p.libraries = Problem::Libraries::several;
        const auto job =
            simulate::make_job(*find_algorithm(op, "islands"), ranks, topology_of("AABB"), false);
        for (const Schedule &schedule : job.schedules) {
          uint64_t elements = 0;
          for (const uint64_t n : schedule.count_of) elements += n;
          CHECK(4 * elements <= (widened ? uint64_t{80} : uint64_t{40}) << 20);
        }
      }
    }
  }
}
