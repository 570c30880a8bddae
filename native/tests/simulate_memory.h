// Which memory a schedule's spans mean: what both halves of the simulator need.
#pragma once

#include <numeric>
#include <sstream>
#include <string>

#include "base/operations.h"
#include "simulate.h"

namespace dicomm::simulate {

// A hash of both, in this order.
uint64_t mix(uint64_t a, uint64_t b);

inline uint64_t total(const std::vector<uint64_t> &counts) {
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

inline uint64_t offset_of(const std::vector<uint64_t> &counts, int i) {
  return std::accumulate(counts.begin(), counts.begin() + i, uint64_t{0});
}

inline bool reduces(const Problem &p) { return is_reduction(p.op); }

// A reducer has none.
inline bool has_data(const Problem &p) { return p.role != Problem::Role::reducer; }

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

// A span as an interval of some memory, numbered as Space.
struct Interval {
  size_t memory;
  uint64_t begin, end;
};

// Where a rank's spaces lie. When input and output coincide, the smaller of them lies in the other's memory.
class Places {
 public:
  Places(const Problem &p, bool in_place) {
    if (!in_place || !can_coincide(p)) return;
    const bool cut = p.op == DICOMM_REDUCE_SCATTER || p.op == DICOMM_SCATTER;
    const bool joined = p.op == DICOMM_ALLGATHER || p.op == DICOMM_GATHER;
    if (cut) at_[1] = {0, offset_of(p.counts, p.rank)};
    if (!cut) at_[0] = {1, joined ? offset_of(p.counts, p.rank) : 0};
  }
  Interval of(const Span &span) const {
    const auto &[memory, shift] = at_[static_cast<size_t>(span.space)];
    return {memory, span.offset + shift, span.offset + shift + span.count};
  }

 private:
  struct Place {
    size_t memory;
    uint64_t shift;
  };
  Place at_[kSpaces] = {{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 0},
                        {5, 0}, {6, 0}, {7, 0}, {8, 0}, {9, 0}};  // by Space
};

inline bool overlap(const Interval &a, const Interval &b) {
  return a.memory == b.memory && std::max(a.begin, b.begin) < std::min(a.end, b.end);
}

inline bool reads_a(const Step &step) { return step.kind != StepKind::recv; }
inline bool reads_b(const Step &step) { return step.kind == StepKind::reduce; }
inline bool writes(const Step &step) { return step.kind != StepKind::send; }

// Elements of each memory.
inline std::vector<uint64_t> sizes_of(const Problem &p, const Schedule &schedule) {
  std::vector<uint64_t> sizes(std::begin(schedule.count_of), std::end(schedule.count_of));
  sizes[0] = input_count(p);
  sizes[1] = output_count(p);
  return sizes;
}

inline bool wide_space(Space space) { return space == Space::acc || space == Space::chip_acc; }
inline bool raw_space(Space space) {
  return space == Space::input || space == Space::stage || space == Space::chip_stage ||
         space == Space::host_input;
}

// The executor skips such a copy.
inline bool is_no_op(const Problem &p, const Places &places, const Step &step) {
  if (step.kind != StepKind::copy || reduces(p)) return false;
  const Interval a = places.of(step.a);
  const Interval dst = places.of(step.dst);
  return a.memory == dst.memory && a.begin == dst.begin;
}

inline constexpr uint32_t kNone = Schedule::kNone;

// [rank][step]: of a send the recv in its peer's schedule and the other way round; kNone where there is none.
std::vector<std::vector<uint32_t>> partners(const Job &job);

inline std::string fail(const char *rule, size_t rank, uint32_t step) {
  std::ostringstream out;
  out << rule << ": rank " << rank << ", step " << step;
  return out.str();
}

}  // namespace dicomm::simulate
