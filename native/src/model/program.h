// The schedules of all ranks in little memory, each send tied to its recv: what a simulation runs.
#pragma once

#include <span>
#include <vector>

#include "base/error.h"
#include "coll/schedule.h"

namespace dicomm::model {

inline constexpr uint32_t kNone = UINT32_MAX;
inline constexpr uint64_t kMostSteps = 24'000'000;  // of all ranks together; a step takes about 60 bytes

// One step of one rank, and what a simulation learns of it.
struct Node {
  int64_t start = -1;  // picoseconds; -1: not yet
  int64_t end = -1;    // of a recv: when its message is there, even if the step has not started
  uint64_t bytes = 0;
  StepKind kind = StepKind::copy;
  uint32_t rank = 0;
  uint32_t peer = 0;         // send, recv
  uint32_t partner = kNone;  // send: its recv; recv: its send
  uint32_t waiting = 0;      // steps that must complete before it starts
  uint32_t cause = kNone;    // the last of them to complete
};

uint64_t bytes_of(const Problem &problem, const Span &span);

class Program {
 public:
  // problems: one per rank. NOT_SUPPORTED when the schedules are too long together; INTERNAL when they do not
  // fit one another.
  static Status build(const Algorithm &algorithm, const std::vector<Problem> &problems,
                      const Topology &topology, Program &out);

  std::vector<Node> nodes;  // rank by rank, in step order
  std::span<const uint32_t> followers(uint32_t node) const {
    return {followers_.data() + first_follower_[node], followers_.data() + first_follower_[node + 1]};
  }

 private:
  void append(const Schedule &schedule, const Problem &problem);
  Status pair_messages(size_t ranks);

  std::vector<uint32_t> first_follower_ = {0};  // [node], and one more
  std::vector<uint32_t> followers_;
};

}  // namespace dicomm::model
