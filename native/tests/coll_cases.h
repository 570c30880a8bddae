// Problems to build schedules for, as all ranks see them, and what must hold of the schedules.
#pragma once

#include <doctest/doctest.h>

#include <random>
#include <vector>

#include "coll/schedule.h"
#include "coll/through_host.h"
#include "simulate.h"

namespace dicomm::simulate {

struct Case {
  int size;
  uint64_t count;
  bool uneven;
  int root;
  bool widened;
  size_t element;
};

// Per-rank counts: equal, or of every kind with zeros among them.
inline std::vector<uint64_t> block_counts(const Case &c, int salt) {
  std::vector<uint64_t> counts;
  for (int i = 0; i < c.size; ++i) {
    const uint64_t k = static_cast<uint64_t>((i * 5 + salt * 3) % 4);
    counts.push_back(c.uneven ? (k == 0 ? 0 : c.count * k / 2 + static_cast<uint64_t>(i)) : c.count);
  }
  return counts;
}

inline std::vector<Problem> problems(dicomm_opcode op, const Case &c) {
  std::vector<Problem> out;
  for (int rank = 0; rank < c.size; ++rank) {
    Problem p;
    p.op = op;
    p.rank = rank;
    p.size = c.size;
    p.root = c.root;
    p.element = c.element;
    p.widened = c.widened;
    p.count = c.count;
    p.counts = block_counts(c, op == DICOMM_ALLTOALL ? rank : 0);
    if (op == DICOMM_ALLTOALL) {
      for (int i = 0; i < c.size; ++i) p.recv_counts.push_back(block_counts(c, i)[static_cast<size_t>(rank)]);
    }
    if ((op == DICOMM_GATHER || op == DICOMM_SCATTER) && c.uneven) {
      p.uneven = true;
      for (int i = 0; i < c.size; ++i) {  // only the root knows them all
        if (rank != c.root && i != rank) p.counts[static_cast<size_t>(i)] = 0;
      }
    }
    out.push_back(p);
  }
  return out;
}

// on_chip: by rank, whether its buffers are a chip's memory.
inline void check(const Algorithm &algorithm, const std::vector<Problem> &ranks, const Topology &topology,
                  std::mt19937 &random, const std::vector<bool> &on_chip = {}) {
  const Problem &c = ranks[0];
  if (!algorithm.fits(c)) return;
  for (const bool in_place : {false, true}) {
    CAPTURE(algorithm.name);
    CAPTURE(c.size);
    CAPTURE(c.count);
    CAPTURE(c.uneven);
    CAPTURE(c.root);
    CAPTURE(c.widened);
    CAPTURE(c.scaled);
    CAPTURE(c.element);
    CAPTURE(in_place);
    Job job = make_job(algorithm, ranks, topology, in_place);
    for (size_t r = 0; r < on_chip.size(); ++r) {
      Schedule &schedule = job.schedules[r];
      if (on_chip[r] && !schedule.on_chip) schedule = coll::through_host(ranks[r], std::move(schedule));
    }
    REQUIRE(check_statically(job) == "");
    for (int run = 0; run < 2; ++run) REQUIRE(execute(job, random) == "");
  }
}

inline void check(const Algorithm &algorithm, const Case &c, const Topology &topology, std::mt19937 &random) {
  check(algorithm, problems(algorithm.op, c), topology, random);
}

}  // namespace dicomm::simulate
