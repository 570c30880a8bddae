// Program: a Schedule made ready to run, and the cache that keeps it: trainers repeat the same few
// operations.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "coll/schedule.h"
#include "progress/spares.h"

namespace dicomm {

class Collective;

// Immutable once compiled; shared by all operations that run it.
struct Program {
  const Algorithm *algorithm = nullptr;
  Schedule schedule;
  std::vector<uint32_t> missing;  // per step: how many steps it waits for
  Schedule::Dependents dependents;
  std::vector<uint32_t> slot;     // per step: which of the sends, receives or tasks of the chip it is
  bool in_arena = false;          // its small messages go through the arena
  std::vector<uint64_t> ordinal;  // per step: how many sends to (receives from) this peer come before it
  uint32_t sends = 0;
  uint32_t receives = 0;
  uint32_t chip_tasks = 0;
  mutable Spares<Collective> spares;  // of operations that ran it

  Program();
  ~Program();
  static std::shared_ptr<const Program> compile(const Algorithm &algorithm, Schedule schedule,
                                                bool in_arena = false);
};

// Safe from any thread.
class ProgramCache {
 public:
  // Null: not there.
  std::shared_ptr<const Program> find(const Problem &problem);
  void keep(const Problem &problem, std::shared_ptr<const Program> program);

 private:
  static constexpr size_t kPrograms = 64;
  static constexpr size_t kMostSteps =
      1 << 16;  // larger ones are built anew: their operations take long anyway
  struct Entry {
    Problem problem;
    std::shared_ptr<const Program> program;
  };
  std::mutex mutex_;
  std::vector<Entry> entries_;
  size_t oldest_ = 0;
};

}  // namespace dicomm
