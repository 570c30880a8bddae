#include <doctest/doctest.h>

#include <string>

#include "coll/arena.h"
#include "path/explain.h"
#include "path/rules.h"

using namespace dicomm;

namespace {

Problem problem(dicomm_opcode op, uint64_t bytes, int size, bool widened = false) {
  Problem p;
  p.op = op;
  p.size = size;
  p.element = 1;
  p.widened = widened;
  p.count = bytes;
  p.counts.assign(static_cast<size_t>(size), 0);
  p.counts[0] = bytes;
  p.recv_counts = p.counts;
  return p;
}

const Rule &choose(const Rules &rules, const Problem &p) { return rules.choose(p, flat_topology(p.size)); }

std::string chosen(const Rules &rules, const Problem &p) { return choose(rules, p).algorithm->name; }

std::string parse_error(const char *text) {
  Rules rules;
  const Status status = Rules::parse(text, rules);
  REQUIRE(status.code() == DICOMM_INVALID_ARGUMENT);
  return status.failure()->text;
}

bool contains(const std::string &text, const std::string &word) {
  return text.find(word) != std::string::npos;
}

}  // namespace

TEST_CASE("the built-in rules cover every collective, size and number of ranks") {
  const Rules rules;
  for (int op = DICOMM_BARRIER; op <= DICOMM_SCATTER; ++op) {
    for (int size : {1, 2, 3, 8, 33, 1000}) {
      for (uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 20, uint64_t{1} << 40}) {
        for (bool widened : {false, true}) {
          const Rule &rule = choose(rules, problem(static_cast<dicomm_opcode>(op), bytes, size, widened));
          CHECK(rule.op == op);
          REQUIRE(rule.algorithm != nullptr);
          CHECK(rule.min_bytes <= bytes);
          CHECK(rule.origin == "built in");
        }
      }
    }
  }
}

TEST_CASE("small messages take few rounds, large ones few bytes") {
  const Rules rules;
  CHECK(chosen(rules, problem(DICOMM_ALLREDUCE, 8, 4)) == "gather_all");
  CHECK(chosen(rules, problem(DICOMM_ALLREDUCE, 8, 64)) == "doubling");
  CHECK(chosen(rules, problem(DICOMM_ALLREDUCE, 64 << 20, 64)) == "ring");
  CHECK(chosen(rules, problem(DICOMM_ALLREDUCE, 64 << 20, 24)) == "ring");
  CHECK(chosen(rules, problem(DICOMM_ALLREDUCE, 64 << 20, 24, true)) == "direct");
}

TEST_CASE("where ranks have an arena, what is small takes one round") {
  const Rules rules;
  for (int op = DICOMM_BARRIER; op <= DICOMM_SCATTER; ++op) {
    for (int size : {2, 4, 16}) {
      Problem small = problem(static_cast<dicomm_opcode>(op), op == DICOMM_BARRIER ? 0 : 64, size);
      small.arena = true;
      CAPTURE(op);
      CHECK(uses_arena(*choose(rules, small).algorithm, small));
      small.arena = false;
      CHECK_FALSE(uses_arena(*choose(rules, small).algorithm, small));
    }
  }
  CHECK(fits_arena(flat_topology(2)));
  CHECK(fits_arena(flat_topology(kMostInArena)));
  CHECK_FALSE(fits_arena(flat_topology(1)));
  CHECK_FALSE(fits_arena(flat_topology(kMostInArena + 1)));
  CHECK_FALSE(fits_arena(topology_of_hosts({0, 0, 1})));
  Topology with_chip = flat_topology(2);
  with_chip.ranks[1].chip.vendor = "alpha";
  CHECK_FALSE(fits_arena(with_chip));
  Topology with_library = flat_topology(2);
  with_library.ranks[0].chip.library = "mpi";
  CHECK_FALSE(fits_arena(with_library));
  CHECK(contains(rules.table(), "arena"));
}

TEST_CASE("rules for hosts hold where there are several and one has several ranks") {
  Rules rules;
  const auto on = [&](dicomm_opcode op, uint64_t bytes, const std::vector<int> &hosts) {
    const Problem p = problem(op, bytes, static_cast<int>(hosts.size()));
    return std::string(rules.choose(p, topology_of_hosts(hosts)).algorithm->name);
  };
  for (const dicomm_opcode op :
       {DICOMM_BROADCAST, DICOMM_ALLREDUCE, DICOMM_REDUCE, DICOMM_ALLGATHER, DICOMM_REDUCE_SCATTER}) {
    CHECK(on(op, 8, {0, 0, 1}) == "leaders");
    CHECK(on(op, 32 << 20, {0, 1, 1}) == "two_level");
    CHECK(on(op, 1 << 20, std::vector<int>(40, 0)) != "two_level");
    for (const uint64_t bytes : {uint64_t{8}, uint64_t{32} << 20}) {
      CHECK(on(op, bytes, {0, 1, 2}) == chosen(rules, problem(op, bytes, 3)));
      CHECK(on(op, bytes, {0, 0, 0}) == chosen(rules, problem(op, bytes, 3)));
    }
  }
  CHECK(on(DICOMM_BARRIER, 0, {0, 1, 0, 1}) == "leaders");
  CHECK(on(DICOMM_ALLTOALL, 0, {0, 1, 0, 1}) == "direct");
  REQUIRE(Rules::parse("allreduce:ring", rules).ok());
  CHECK(on(DICOMM_ALLREDUCE, 8, {0, 0, 1}) == "ring");
  CHECK(contains(rules.table(), ">= 2"));
}

TEST_CASE("user rules come first and only within their range") {
  Rules rules;
  REQUIRE(
      Rules::parse(" allreduce@64K-1M : ring , barrier:tree,broadcast@1G-:chain,gather@-2:binomial", rules)
          .ok());
  CHECK(chosen(rules, problem(DICOMM_ALLREDUCE, (64 << 10) - 1, 2)) != "ring");
  CHECK(chosen(rules, problem(DICOMM_ALLREDUCE, 64 << 10, 2)) == "ring");
  CHECK(chosen(rules, problem(DICOMM_ALLREDUCE, 1 << 20, 2)) == "ring");
  CHECK(chosen(rules, problem(DICOMM_ALLREDUCE, (1 << 20) + 1, 2)) != "ring");
  CHECK(chosen(rules, problem(DICOMM_BARRIER, 0, 5)) == "tree");
  CHECK(chosen(rules, problem(DICOMM_BROADCAST, uint64_t{1} << 30, 3)) == "chain");
  CHECK(chosen(rules, problem(DICOMM_GATHER, 2, 3)) == "binomial");
  CHECK(chosen(rules, problem(DICOMM_GATHER, 3, 3)) == "direct");
  CHECK(choose(rules, problem(DICOMM_BARRIER, 0, 5)).origin == "user");
  REQUIRE(Rules::parse("", rules).ok());
  CHECK(chosen(rules, problem(DICOMM_BARRIER, 0, 5)) == "dissemination");
}

TEST_CASE("where ranks do not know one another's counts all choose alike") {
  Rules rules;
  REQUIRE(Rules::parse("gather:binomial,scatter:binomial", rules).ok());
  for (dicomm_opcode op : {DICOMM_GATHER, DICOMM_SCATTER}) {
    for (int size : {2, 9, 40}) {
      Problem root = problem(op, 1 << 30, size), other = problem(op, 1, size);
      CHECK(chosen(rules, root) == "binomial");
      root.uneven = other.uneven = true;
      CHECK(chosen(rules, root) == "direct");
      CHECK(chosen(rules, root) == chosen(rules, other));
    }
  }
}

TEST_CASE("a wrong rule names the wrong word and the right ones, and changes nothing") {
  CHECK(contains(parse_error("allredcue:ring"), "'allredcue'"));
  CHECK(contains(parse_error("allredcue:ring"), "allreduce"));
  CHECK(contains(parse_error("send:ring"), "not a collective"));
  CHECK(contains(parse_error("allreduce:rign"), "'rign'"));
  CHECK(contains(parse_error("allreduce:rign"), "doubling, gather_all, direct, ring, leaders, two_level"));
  CHECK(contains(parse_error("allreduce"), "no ':'"));
  CHECK(contains(parse_error("allreduce@64:ring"), "range"));
  CHECK(contains(parse_error("allreduce@1X-:ring"), "'1X'"));
  CHECK(contains(parse_error("allreduce@99999999999999999999-:ring"), "not a size"));
  CHECK(contains(parse_error("allreduce@17179869184G-:ring"), "not a size"));
  CHECK(contains(parse_error("allreduce@2K-1K:ring"), "empty"));
  Rules rules;
  REQUIRE(Rules::parse("barrier:tree", rules).ok());
  CHECK(Rules::parse("barrier:oak", rules).code() == DICOMM_INVALID_ARGUMENT);
  CHECK(chosen(rules, problem(DICOMM_BARRIER, 0, 5)) == "tree");
}

TEST_CASE("the table shows user rules first") {
  Rules rules;
  REQUIRE(Rules::parse("allreduce@64K-:ring", rules).ok());
  const std::string table = rules.table();
  CHECK(contains(table, ">= 64K"));
  CHECK(table.find("user") < table.find("built in"));
  for (int op = DICOMM_BARRIER; op <= DICOMM_SCATTER; ++op) {
    CHECK(contains(table, choose(rules, problem(static_cast<dicomm_opcode>(op), 0, 2)).algorithm->name));
  }
}

TEST_CASE("explain tells the rule, the rounds, the bytes and the steps") {
  Question question;
  question.op = DICOMM_ALLREDUCE;
  question.count = 1 << 20;
  question.element = 4;
  question.rank = 1;
  question.size = 4;
  Rules rules;
  REQUIRE(Rules::parse("allreduce:ring", rules).ok());
  const std::string ring = explain(rules, question, flat_topology(4));
  CHECK(contains(ring, "4 ranks: ring"));
  CHECK(contains(ring, "rule: user"));
  CHECK(contains(ring, "rounds: 6 "));                                                // 2 * (size - 1)
  CHECK(contains(ring, "sends 12 messages, 6291456 bytes; receives 6291456 bytes"));  // 2 * 3 / 4 of 4 MiB
  CHECK(contains(ring, "0: send input["));

  question.op = DICOMM_BARRIER;
  question.count = 0;
  question.size = 5;
  CHECK(contains(explain(Rules{}, question, flat_topology(5)), "rounds: 1 "));
  CHECK(contains(explain(Rules{}, question, flat_topology(5)), "go through memory that all ranks share"));
  question.size = kMostInArena + 1;
  const std::string larger = explain(Rules{}, question, flat_topology(question.size));
  CHECK(contains(larger, "rounds: 5 "));
  CHECK_FALSE(contains(larger, "share"));
  question.size = 5;
  question.op = DICOMM_SEND;
  CHECK(contains(explain(Rules{}, question, flat_topology(5)), "send moves one message"));
  question.op = -1;
  CHECK(explain(rules, question, flat_topology(5)) == rules.table());
  // Every collective, whatever the algorithm.
  for (int op = DICOMM_BARRIER; op <= DICOMM_SCATTER; ++op) {
    question.op = op;
    question.count = 1003;
    CHECK(contains(explain(Rules{}, question, flat_topology(5)), "rounds: "));
  }
}
