// Why: which rule wins and what it makes a rank do, as text for people. Pure.
#pragma once

#include <optional>
#include <string>

#include "model/machine.h"
#include "path/rules.h"

namespace dicomm {

struct Question {
  int op = -1;         // dicomm_opcode; < 0: the whole table
  uint64_t count = 0;  // elements of the operation's largest buffer; cut into nearly equal blocks where the
                       // operation has one per rank
  size_t element = 1;  // bytes
  // Of reductions, as in Problem: the accumulation type is not dtype; inputs are not used as they are.
  bool widened = false, scaled = false;
  dicomm_dtype accumulation = DICOMM_FLOAT32;
  dicomm_reduce reduce = DICOMM_SUM;
  std::optional<dicomm_dtype> wire;  // as in Problem
  int rank = 0;
  int size = 1;
  bool simulate = false;  // predict the time on `machine` instead of listing steps
  model::Machine machine;
};

// Where a rank has a chip, its buffers are there.
std::string explain(const Rules &rules, const Question &question, const Topology &topology);

}  // namespace dicomm
