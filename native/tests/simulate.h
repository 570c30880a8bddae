// Runs the schedules of all ranks over symbolic elements, in a random legal order, and reports the first rule
// of coll/schedule.h that one of them breaks. "" means none.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "coll/schedule.h"

namespace dicomm::simulate {

enum class State : uint8_t { unset, raw, partial, finished };

// What an element of some space holds: element `index` of the operation, with the contributions of `ranks`.
struct Value {
  State state = State::unset;
  uint32_t ranks = 0;  // bit r: rank r's input is in it
  uint64_t index = 0;  // which element
  uint64_t hash = 0;   // of the expression, operand order included
};

struct Job {
  std::vector<Problem> problems;  // one per rank
  std::vector<Schedule> schedules;
  bool in_place = false;  // input and output share memory where the operation allows it
};

Job make_job(const Algorithm &algorithm, std::vector<Problem> problems, const Topology &topology,
             bool in_place);

// Elements of input and output of a rank.
uint64_t input_count(const Problem &problem);
uint64_t output_count(const Problem &problem);

// Bounds, spaces, dependencies, pairing of sends and recvs, races (over all legal orders), aliasing.
std::string check_statically(const Job &job);
// Executes; checks reads of what was never written, states, `finish`, double contributions, deadlock and the
// results on every rank.
std::string execute(const Job &job, std::mt19937 &random);

}  // namespace dicomm::simulate
