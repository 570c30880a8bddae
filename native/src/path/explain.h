// Why: which rule wins and what it makes a rank do, as text for people. Pure.
#pragma once

#include <string>

#include "model/machine.h"
#include "path/rules.h"

namespace dicomm {

struct Question {
  int op = -1;           // dicomm_opcode; < 0: the whole table
  uint64_t count = 0;    // elements of the operation's largest buffer; cut into nearly equal blocks where the
                         // operation has one per rank
  size_t element = 1;    // bytes
  bool widened = false;  // as in Problem
  int rank = 0;
  int size = 1;
  bool simulate = false;  // predict the time on `machine` instead of listing steps
  model::Machine machine;
};

std::string explain(const Rules &rules, const Question &question, const Topology &topology);

}  // namespace dicomm
