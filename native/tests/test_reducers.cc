// Allreduce and reduce where some ranks only help: on symbolic data, in many layouts, and what everybody
// sends.
#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <string>

#include "coll_cases.h"
#include "path/rules.h"
#include "simulate.h"

using namespace dicomm;
using simulate::Case;
using simulate::problems;

namespace {

using Role = Problem::Role;

// A rank per letter, which names its host; small letters are reducers.
const std::string kHosts[] = {"Aa",    "aA",     "AAa",    "AAAa",     "AaAaA",   "AAaaa",     "Ab",
                              "ABc",   "aBC",    "ABCd",   "ABCde",    "ABCdef",  "ABcd",      "ABCDEf",
                              "AABBc", "ABABcd", "AAABcc", "AABBCCdd", "aAABBb",  "cABcABABc", "AABBCCDDeef",
                              "AAAAb", "aaaaA",  "ABBc",   "ABBCCCd",  "AAAABBc", "aBaCaD"};

Topology topology_of(const std::string &layout) {
  std::vector<int> hosts;
  for (const char c : layout) hosts.push_back(std::toupper(c));
  Topology topology = topology_of_hosts(hosts);
  for (size_t r = 0; r < layout.size(); ++r) {
    if (std::islower(layout[r])) topology.ranks[r].chip.role = "reducer";
  }
  REQUIRE(form_islands(topology).ok());
  return topology;
}

// Letters are vendors here, and all are on one host, or each vendor's are on one of its own.
Topology islands_of_letters(const std::string &layout, bool one_host) {
  Topology topology = one_host ? flat_topology(static_cast<int>(layout.size())) : topology_of(layout);
  for (size_t r = 0; r < layout.size(); ++r) {
    ChipInfo &chip = topology.ranks[r].chip;
    chip.role = std::islower(layout[r]) ? "reducer" : "worker";
    chip.vendor = std::string(1, static_cast<char>(std::toupper(layout[r])));
    chip.library = chip.vendor + "-ccl";
  }
  REQUIRE(form_islands(topology).ok());
  return topology;
}

std::vector<Problem> helped(dicomm_opcode op, const Case &c, const std::string &layout) {
  std::vector<Problem> ranks = problems(op, c);
  for (size_t r = 0; r < ranks.size(); ++r)
    ranks[r].role = std::islower(layout[r]) ? Role::reducer : Role::worker;
  return ranks;
}

std::vector<Case> cases(dicomm_opcode op, const std::string &layout) {
  const int size = static_cast<int>(layout.size());
  std::vector<int> roots;
  for (int r = 0; r < size; ++r) {
    const bool wanted = op == DICOMM_REDUCE || roots.empty();
    if (wanted && std::isupper(layout[static_cast<size_t>(r)])) roots.push_back(r);
  }
  std::vector<Case> out;
  for (const int root : roots) {
    for (const bool widened : {false, true}) {
      for (const uint64_t count : {0, 1, 7, 50}) {
        out.push_back({size, count, false, root, widened, 2});
      }
      // Elements so large that each is a piece, and more of them than slots.
      if (root == roots.front()) out.push_back({size, 150, false, root, widened, size_t{1} << 19});
    }
  }
  return out;
}

void check_layouts(dicomm_opcode op) {
  std::mt19937 random(20261130);
  for (const std::string &layout : kHosts) {
    CAPTURE(layout);
    for (const Case &c : cases(op, layout)) {
      for (const bool scaled : {false, true}) {
        std::vector<Problem> ranks = helped(op, c, layout);
        for (Problem &p : ranks) p.scaled = scaled;
        for (const Algorithm &algorithm : algorithms()) {
          if (algorithm.op == op) simulate::check(algorithm, ranks, topology_of(layout), random);
        }
      }
    }
  }
}

void check_islands(dicomm_opcode op) {
  std::mt19937 random(20261201);
  for (const std::string layout : {"AAb", "AABBc", "ABABcc", "AABCd", "aABABb", "AAABBBCCCde", "AAa"}) {
    std::vector<bool> on_chip;
    for (const char c : layout) on_chip.push_back(std::isupper(c) != 0);
    for (const bool one_host : {false, true}) {
      CAPTURE(layout);
      CAPTURE(one_host);
      const Topology topology = islands_of_letters(layout, one_host);
      for (const Case &c : cases(op, layout)) {
        for (const bool scaled : {false, true}) {
          std::vector<Problem> ranks = helped(op, c, layout);
          for (Problem &p : ranks) {
            p.scaled = scaled;
            p.libraries = Problem::Libraries::several;
          }
          for (const Algorithm &algorithm : algorithms()) {
            if (algorithm.op == op) simulate::check(algorithm, ranks, topology, random, on_chip);
          }
        }
      }
    }
  }
}

// Bytes that leave and reach each host.
struct Traffic {
  std::vector<double> out, in;
  double most() const {
    return std::max(*std::max_element(out.begin(), out.end()), *std::max_element(in.begin(), in.end()));
  }
};

Traffic traffic(dicomm_opcode op, const std::string &layout, uint64_t count, int root = 0) {
  const Topology topology = topology_of(layout);
  const Case c{static_cast<int>(layout.size()), count, false, root, false, 4};
  const auto job =
      simulate::make_job(*find_algorithm(op, "reducers"), helped(op, c, layout), topology, false);
  Traffic found;
  found.out.resize(static_cast<size_t>(topology.hosts()));
  found.in.resize(found.out.size());
  for (size_t r = 0; r < layout.size(); ++r) {
    for (const Step &step : job.schedules[r].steps) {
      if (step.kind != StepKind::send) continue;
      const int from = topology.ranks[r].host_index;
      const int to = topology.ranks[static_cast<size_t>(step.peer)].host_index;
      if (from == to) continue;
      found.out[static_cast<size_t>(from)] += 4.0 * static_cast<double>(step.a.count);
      found.in[static_cast<size_t>(to)] += 4.0 * static_cast<double>(step.a.count);
    }
  }
  return found;
}

}  // namespace

TEST_CASE("allreduce with reducers") { check_layouts(DICOMM_ALLREDUCE); }
TEST_CASE("reduce with reducers") { check_layouts(DICOMM_REDUCE); }
TEST_CASE("allreduce with reducers and islands") { check_islands(DICOMM_ALLREDUCE); }
TEST_CASE("reduce with reducers and islands") { check_islands(DICOMM_REDUCE); }

TEST_CASE("84 ranks with reducers on uneven hosts") {
  std::mt19937 random(20261202);
  std::string layout;
  for (int round = 0; round < 6; ++round) {  // hosts of 1 to 6 ranks, one of each after the other
    for (int host = 0; host < 24; ++host) {
      const char name = static_cast<char>(host < 18 ? 'A' + host : 'a' + host);
      if (round <= host * 7 % 6) layout += name;
    }
  }
  const Topology topology = topology_of(layout);
  for (const dicomm_opcode op : {DICOMM_ALLREDUCE, DICOMM_REDUCE}) {
    for (const bool widened : {false, true}) {
      const Case c{static_cast<int>(layout.size()), 700, false, 30, widened, 2};
      for (const char *name : {"reducers", "workers"})
        simulate::check(*find_algorithm(op, name), helped(op, c, layout), topology, random);
    }
  }
}

TEST_CASE("only algorithms that know reducers take operations with reducers, and these no others") {
  for (const Algorithm &algorithm : algorithms()) {
    if (algorithm.op != DICOMM_ALLREDUCE && algorithm.op != DICOMM_REDUCE) continue;
    CAPTURE(algorithm.name);
    const std::string name = algorithm.name;
    for (const auto libraries :
         {Problem::Libraries::none, Problem::Libraries::one, Problem::Libraries::several}) {
      Problem problem;
      problem.op = algorithm.op;
      problem.size = 3;
      problem.libraries = libraries;
      if (name.starts_with("reducers") || name == "workers") CHECK(!algorithm.fits(problem));
      problem.role = Role::reducer;
      if (!name.starts_with("reducers") && name != "workers") CHECK(!algorithm.fits(problem));
    }
  }
}

// Of S over n hosts of workers: 2 S (n - 1) / n without help, 2 S n (n - 1) / (n n + k n - 2 k) with k hosts
// of reducers, and S from n of them on.
TEST_CASE("allreduce puts equal loads on workers and reducers") {
  constexpr uint64_t kCount = 24 << 20;
  constexpr double kBytes = 4.0 * kCount;
  const auto check = [&](const std::string &layout, double factor) {
    CAPTURE(layout);
    const Traffic found = traffic(DICOMM_ALLREDUCE, layout, kCount);
    for (size_t host = 0; host < found.out.size(); ++host) {
      CAPTURE(host);
      CHECK(found.out[host] == doctest::Approx(factor * kBytes).epsilon(0.001));
      CHECK(found.in[host] == doctest::Approx(factor * kBytes).epsilon(0.001));
    }
  };
  check("ABc", 1);
  check("ABcd", 1);
  check("ABCd", 12.0 / 10);
  check("ABCde", 12.0 / 11);
  check("ABCdef", 1);
  check("ABCDe", 24.0 / 18);
  check("ABCDef", 24.0 / 20);
  check("AABBCCddd", 12.0 / 10);  // reducers of one host share its link
  check("AABBCCde", 12.0 / 11);
  CHECK(traffic(DICOMM_ALLREDUCE, "ABCDEFGHijklmnop", kCount).most() == kBytes);
  // More of them have less to do each.
  const Traffic more = traffic(DICOMM_ALLREDUCE, "ABcdef", kCount);
  CHECK(more.out[0] == kBytes);
  CHECK(more.out[2] == doctest::Approx(kBytes / 2).epsilon(0.001));
  // Nothing crosses but the news where one host has all the data.
  CHECK(traffic(DICOMM_ALLREDUCE, "AAAb", kCount).most() == 0);
}

TEST_CASE("reduce: workers send and receive the buffer once, reducers no more") {
  constexpr uint64_t kCount = 24 << 20;
  for (const std::string layout : {"ABCd", "ABCde", "ABCDef", "AABBCCd", "ABc", "ABCDEFgh"}) {
    for (const size_t root : {size_t{0}, layout.find('C')}) {
      if (root == std::string::npos) continue;
      CAPTURE(layout);
      const Traffic found = traffic(DICOMM_REDUCE, layout, kCount, static_cast<int>(root));
      CHECK(found.most() <= 4.001 * kCount);
    }
  }
}

TEST_CASE("what a reducer keeps does not grow with the buffer") {
  for (const uint64_t count : {uint64_t{4} << 20, uint64_t{64} << 20}) {
    const std::string layout = "ABCDefgh";
    const auto ranks = helped(DICOMM_ALLREDUCE, {8, count, false, 0, false, 4}, layout);
    const Schedule schedule =
        find_algorithm(DICOMM_ALLREDUCE, "reducers")->build(ranks[5], topology_of(layout));
    CHECK(4 * (schedule.scratch(Space::acc) + schedule.scratch(Space::stage)) <= 8 << 20);
  }
}

TEST_CASE("the built-in rules cover operations with reducers") {
  const Rules rules;
  for (const dicomm_opcode op : {DICOMM_ALLREDUCE, DICOMM_REDUCE}) {
    for (const uint64_t bytes : {uint64_t{0}, uint64_t{64} << 10, uint64_t{1} << 20, uint64_t{1} << 40}) {
      for (const int size : {2, 33, 1000}) {
        Problem problem;
        problem.op = op;
        problem.size = size;
        problem.count = bytes;
        problem.role = Role::worker;
        for (const auto libraries : {Problem::Libraries::none, Problem::Libraries::several}) {
          problem.libraries = libraries;
          const Algorithm &chosen = *rules.choose(problem, flat_topology(size)).algorithm;
          CHECK(chosen.op == op);
          CHECK(chosen.fits(problem));
        }
      }
    }
  }
  Rules mine;
  REQUIRE(Rules::parse("allreduce:ring", mine).ok());
  Problem problem;
  problem.op = DICOMM_ALLREDUCE;
  problem.size = 3;
  problem.count = 10;
  problem.role = Role::worker;
  CHECK(std::string(mine.choose(problem, flat_topology(3)).algorithm->name) == "workers");
}
