// Every algorithm on symbolic data (simulate.h), for sizes that are and are not powers of two, every kind of
// count, several roots, in place and not.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>

#include "base/operations.h"
#include "coll/arena.h"
#include "coll_cases.h"
#include "simulate.h"

using namespace dicomm;
using simulate::Case;
using simulate::problems;

namespace {

std::vector<Case> cases(dicomm_opcode op) {
  const bool rooted =
      op == DICOMM_BROADCAST || op == DICOMM_REDUCE || op == DICOMM_GATHER || op == DICOMM_SCATTER;
  const bool reduces = is_reduction(op);
  const bool blocks = op >= DICOMM_ALLGATHER;
  std::vector<Case> out;
  for (int size : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17}) {
    std::set<int> roots = {0};
    if (rooted) roots = {0, size / 3, size - 1};
    for (int root : roots) {
      for (bool widened : {false, true}) {
        if (widened && !reduces) continue;
        for (uint64_t count : {0, 1, 7}) out.push_back({size, count, false, root, widened, 2});
        if (blocks) out.push_back({size, 6, true, root, widened, 2});
      }
      // Elements so large that messages are cut into chunks.
      if (size <= 9 && root == size - 1) {
        out.push_back({size, 70, false, root, false, size_t{1} << 18});
        if (blocks) out.push_back({size, 40, true, root, false, size_t{1} << 18});
      }
    }
    if (!rooted && size <= 9) {
      out.push_back({size, 70, false, 0, reduces, size_t{1} << 18});
      if (blocks) out.push_back({size, 40, true, 0, reduces, size_t{1} << 18});
    }
    if (size == 4 || size == 7) out.push_back({size, 1000, false, 0, false, 4});
  }
  return out;
}

void check_all(dicomm_opcode op) {
  std::mt19937 random(20240607);
  for (const Algorithm &algorithm : algorithms()) {
    if (algorithm.op != op) continue;
    for (const Case &c : cases(op)) simulate::check(algorithm, c, flat_topology(c.size), random);
  }
}

}  // namespace

TEST_CASE("barrier schedules") { check_all(DICOMM_BARRIER); }
TEST_CASE("broadcast schedules") { check_all(DICOMM_BROADCAST); }
TEST_CASE("allreduce schedules") { check_all(DICOMM_ALLREDUCE); }
TEST_CASE("reduce schedules") { check_all(DICOMM_REDUCE); }
TEST_CASE("allgather schedules") { check_all(DICOMM_ALLGATHER); }
TEST_CASE("reduce_scatter schedules") { check_all(DICOMM_REDUCE_SCATTER); }
TEST_CASE("alltoall schedules") { check_all(DICOMM_ALLTOALL); }
TEST_CASE("gather schedules") { check_all(DICOMM_GATHER); }
TEST_CASE("scatter schedules") { check_all(DICOMM_SCATTER); }

// Which is what lets a rank write all it has to say at once, into the arena.
TEST_CASE("schedules of one round: a message a peer, all there from the start") {
  for (const Algorithm &algorithm : algorithms()) {
    if (!algorithm.one_round) continue;
    CAPTURE(algorithm.op);
    for (const Case &c : cases(algorithm.op)) {
      for (const Problem &problem : problems(algorithm.op, c)) {
        if (problem.bytes() > kOneRoundBytes) continue;
        std::set<int> to, from;
        for (const Step &step : algorithm.build(problem, flat_topology(c.size)).steps) {
          if (step.kind == StepKind::send) {
            CHECK(step.dep_count == 0);
            CHECK(to.insert(step.peer).second);
          } else if (step.kind == StepKind::recv) {
            CHECK(from.insert(step.peer).second);
          }
        }
      }
    }
  }
}

// After a barrier every rank has heard, directly or not, from every other.
TEST_CASE("a barrier holds back every rank until the last one came") {
  for (const char *name : {"direct", "dissemination", "tree", "leaders"}) {
    for (int size : {2, 3, 5, 8, 13}) {
      for (int late = 0; late < size; ++late) {
        CAPTURE(name);
        CAPTURE(size);
        CAPTURE(late);
        std::vector<int> host_of_rank;
        for (int rank = 0; rank < size; ++rank) host_of_rank.push_back(rank * rank % 5 % 3);
        const Topology topology = topology_of_hosts(host_of_rank);
        auto job =
            simulate::make_job(*find_algorithm(DICOMM_BARRIER, name),
                               problems(DICOMM_BARRIER, {size, 0, false, 0, false, 1}), topology, false);
        // The late rank never starts; all others can run to where they wait for it and none to the end.
        std::vector<size_t> done(static_cast<size_t>(size), 0);
        const auto completed_sends = [&](int from, int to) {
          size_t n = 0;
          const Schedule &s = job.schedules[static_cast<size_t>(from)];
          for (size_t i = 0; i < done[static_cast<size_t>(from)]; ++i) {
            n += s.steps[i].kind == StepKind::send && s.steps[i].peer == to;
          }
          return n;
        };
        // All of them send after all earlier recvs, so that running steps in order is the only order.
        for (bool progress = true; progress;) {
          progress = false;
          for (int rank = 0; rank < size; ++rank) {
            const Schedule &s = job.schedules[static_cast<size_t>(rank)];
            size_t &at = done[static_cast<size_t>(rank)];
            if (rank == late || at == s.steps.size()) continue;
            if (s.steps[at].kind == StepKind::recv) {
              size_t earlier = 0;
              for (size_t i = 0; i < at; ++i) {
                earlier += s.steps[i].kind == StepKind::recv && s.steps[i].peer == s.steps[at].peer;
              }
              if (completed_sends(s.steps[at].peer, rank) <= earlier) continue;
            }
            ++at;
            progress = true;
          }
        }
        for (int rank = 0; rank < size; ++rank) {
          if (rank != late)
            CHECK(done[static_cast<size_t>(rank)] < job.schedules[static_cast<size_t>(rank)].steps.size());
        }
      }
    }
  }
}

TEST_CASE("schedules stay short") {
  for (const Algorithm &algorithm : algorithms()) {
    for (int size : {2, 16, 64}) {
      const auto all = problems(algorithm.op, {size, uint64_t{1} << 34, false, 0, false, 4});
      const Schedule schedule = algorithm.build(all[0], flat_topology(size));
      CAPTURE(algorithm.name);
      CAPTURE(size);
      // Rings: 16 chunks for each of size shards; in pieces: 1024 of them, of which 1 / size drive messages
      // to all others.
      CHECK(schedule.steps.size() <= static_cast<size_t>(5 * std::max(16 * size, 1024) + 64));
    }
  }
}

TEST_CASE("direct reduction of a widened type moves only bytes of dtype") {
  for (const char *name : {"direct", "gather_all"}) {
    const auto all = problems(DICOMM_ALLREDUCE, {4, 1000, false, 0, true, 2});
    const Schedule schedule = find_algorithm(DICOMM_ALLREDUCE, name)->build(all[1], flat_topology(4));
    for (const Step &step : schedule.steps) {
      if (step.kind == StepKind::send) CHECK(step.a.space != Space::acc);
    }
  }
}

// The simulator must be able to fail: a schedule with one thing wrong.
TEST_CASE("the simulator sees broken schedules") {
  std::mt19937 random(1);
  const Algorithm &ring = *find_algorithm(DICOMM_ALLREDUCE, "ring");
  const Case c{4, 8, false, 0, false, 4};
  const simulate::Job good = simulate::make_job(ring, problems(DICOMM_ALLREDUCE, c), flat_topology(4), true);
  size_t missed = 0;
  for (size_t i = 0; i < good.schedules[2].steps.size(); ++i) {
    simulate::Job without_deps = good;
    without_deps.schedules[2].steps[i].dep_count = 0;
    const bool had = good.schedules[2].steps[i].dep_count > 0;
    if (had && simulate::check_statically(without_deps).empty()) ++missed;

    simulate::Job shifted = good;
    Step &step = shifted.schedules[2].steps[i];
    (step.kind == StepKind::send ? step.a : step.dst).offset ^= 1;
    CHECK((!simulate::check_statically(shifted).empty() || !simulate::execute(shifted, random).empty()));

    simulate::Job finish = good;
    finish.schedules[2].steps[i].finish = !finish.schedules[2].steps[i].finish;
    const bool matters = good.schedules[2].steps[i].kind == StepKind::reduce;
    if (matters) CHECK(!simulate::execute(finish, random).empty());

    simulate::Job doubled = good;  // one rank's contribution twice, another's not at all
    doubled.schedules[2].steps[i].b = doubled.schedules[2].steps[i].a;
    if (matters) CHECK(!simulate::execute(doubled, random).empty());
  }
  CHECK(missed == 0);
  simulate::Job lost = good;
  lost.schedules[1].steps.pop_back();
  CHECK(!simulate::check_statically(lost).empty());
  CHECK(!simulate::execute(lost, random).empty());
}
