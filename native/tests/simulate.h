// Runs the schedules of all ranks over symbolic elements, in a random legal order, and reports the first rule
// of coll/schedule.h that one of them breaks. "" means none.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "coll/schedule.h"

namespace dicomm::simulate {

enum class State : uint8_t { unset, raw, partial, finished };

// A set of ranks as the sum of a random 128-bit number per rank: equal for equal sets (and, but for luck that
// nobody has, only for those), whatever the order they were added in. A rank added twice shows.
struct RankSet {
  uint64_t low = 0, high = 0;
  uint32_t count = 0;
  static RankSet of(int rank);
  void add(const RankSet &other) {
    low += other.low;
    high += other.high;
    count += other.count;
  }
  bool operator==(const RankSet &) const = default;
};

// What an element of some space holds: element `index` of the operation, with the contributions of `ranks`.
struct Value {
  RankSet ranks;  // whose input is in it
  State state = State::unset;
  uint64_t index = 0;  // which element
  uint64_t hash = 0;   // of the expression, operand order included
};

struct Job {
  std::vector<Problem> problems;  // one per rank
  std::vector<Schedule> schedules;
  std::vector<int> island_of;  // by rank: who calls a library together
  bool in_place = false;       // input and output share memory where the operation allows it
};

Job make_job(const Algorithm &algorithm, std::vector<Problem> problems, const Topology &topology,
             bool in_place);

// Does it hold the accumulation type, and is that another than dtype?
bool wide(const Problem &problem, Space space);

// Elements of input and output of a rank.
uint64_t input_count(const Problem &problem);
uint64_t output_count(const Problem &problem);

// Bounds, spaces, dependencies, pairing of sends and recvs, races (over all legal orders), aliasing.
std::string check_statically(const Job &job);
// Executes; checks reads of what was never written, states, `finish`, double contributions, deadlock and the
// results on every rank.
std::string execute(const Job &job, std::mt19937 &random);

}  // namespace dicomm::simulate
