// Which memory a schedule's spans mean: what both halves of the simulator need.
#pragma once

#include <numeric>
#include <sstream>
#include <string>

#include "simulate.h"

namespace dicomm::simulate {

inline uint64_t total(const std::vector<uint64_t> &counts) {
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

inline uint64_t offset_of(const std::vector<uint64_t> &counts, int i) {
  return std::accumulate(counts.begin(), counts.begin() + i, uint64_t{0});
}

inline bool reduces(const Problem &p) {
  return p.op == DICOMM_ALLREDUCE || p.op == DICOMM_REDUCE || p.op == DICOMM_REDUCE_SCATTER;
}

// Where input lies in the memory of output when they coincide: input element i is output element i + shift.
inline bool can_coincide(const Problem &p) {
  switch (p.op) {
    case DICOMM_ALLREDUCE:
    case DICOMM_ALLGATHER:
    case DICOMM_REDUCE_SCATTER:
      return true;
    case DICOMM_REDUCE:
    case DICOMM_GATHER:
    case DICOMM_SCATTER:
      return p.rank == p.root;
    default:
      return false;
  }
}

inline int64_t shift_of(const Problem &p) {
  switch (p.op) {
    case DICOMM_ALLGATHER:
    case DICOMM_GATHER:
      return static_cast<int64_t>(offset_of(p.counts, p.rank));
    case DICOMM_REDUCE_SCATTER:
    case DICOMM_SCATTER:
      return -static_cast<int64_t>(offset_of(p.counts, p.rank));
    default:
      return 0;
  }
}

// A span as an interval of some memory: 0 input (and output, when they coincide), 1 output, 2 acc, 3 stage.
struct Interval {
  int memory;
  int64_t begin, end;
};

inline Interval interval(const Job &job, size_t rank, const Span &span) {
  const Problem &p = job.problems[rank];
  Interval out{static_cast<int>(span.space), static_cast<int64_t>(span.offset),
               static_cast<int64_t>(span.offset + span.count)};
  if (span.space == Space::output && job.in_place && can_coincide(p)) {
    out.memory = 0;
    out.begin -= shift_of(p);
    out.end -= shift_of(p);
  }
  return out;
}

inline bool overlap(const Interval &a, const Interval &b) {
  return a.memory == b.memory && std::max(a.begin, b.begin) < std::min(a.end, b.end);
}

inline bool reads_a(const Step &step) { return step.kind != StepKind::recv; }
inline bool reads_b(const Step &step) { return step.kind == StepKind::reduce; }
inline bool writes(const Step &step) { return step.kind != StepKind::send; }

// The executor skips such a copy.
inline bool is_no_op(const Job &job, size_t rank, const Step &step) {
  if (step.kind != StepKind::copy || reduces(job.problems[rank])) return false;
  const Interval a = interval(job, rank, step.a);
  const Interval dst = interval(job, rank, step.dst);
  return a.memory == dst.memory && a.begin == dst.begin;
}

inline std::string fail(const char *rule, size_t rank, uint32_t step) {
  std::ostringstream out;
  out << rule << ": rank " << rank << ", step " << step;
  return out.str();
}

}  // namespace dicomm::simulate
