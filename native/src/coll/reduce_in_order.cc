#include "coll/build.h"

namespace dicomm::coll {

uint32_t reduce_in_order(Schedule &schedule, Span dst, Span partial, const std::vector<Span> &operands,
                         const std::vector<uint32_t> &ready, const Schedule::After &before_output) {
  const size_t n = operands.size();
  Schedule::After after = before_output;
  if (n == 1) {
    after.push_back(ready[0]);
    return schedule.copy(dst, operands[0], true, after);
  }
  uint32_t last = ready[0];
  for (size_t i = 1; i < n; ++i) {
    const bool finish = i + 1 == n;
    const Span left = i == 1 ? operands[0] : partial;
    if (!finish) {
      last = schedule.reduce(partial, left, operands[i], false, {last, ready[i]});
      continue;
    }
    after.push_back(last);
    after.push_back(ready[i]);
    last = schedule.reduce(dst, left, operands[i], true, after);
  }
  return last;
}

}  // namespace dicomm::coll
