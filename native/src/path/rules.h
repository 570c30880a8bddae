// Which algorithm for which problem: a table that can be merged and printed. Pure.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "coll/schedule.h"

namespace dicomm {

struct Rule {
  dicomm_opcode op;
  uint64_t min_bytes = 0;
  uint64_t max_bytes = std::numeric_limits<uint64_t>::max();  // inclusive
  int min_size = 1;
  int max_size = std::numeric_limits<int>::max();  // ranks
  bool widened_only = false;                       // only dtypes that accumulate in a wider type
  // > 1: only where there are as many hosts and one of them has several ranks.
  int min_hosts = 1;
  bool arena = false;  // only where the ranks have one
  const Algorithm *algorithm = nullptr;
  std::string origin;  // "built in", "user"
};

// The first rule that covers a problem and whose algorithm fits it wins. The built-in rules cover everything.
class Rules {
 public:
  Rules();  // the built-in ones
  // text: "" or comma-separated OP[@MIN-MAX]:ALGORITHM with sizes such as 64K (MIN or MAX may be left out),
  // before the built-in rules. INVALID_ARGUMENT names the word that is wrong and the words that would be
  // right.
  static Status parse(std::string_view text, Rules &out);
  // problem.op: a collective.
  const Rule &choose(const Problem &problem, const Topology &topology) const;
  std::string table() const;  // what `dicomm explain` prints

 private:
  std::vector<Rule> rules_;
};

}  // namespace dicomm
