// How the members of a group learn one another's places in MPI_COMM_WORLD, which MPI needs to make them a
// communicator: all tell theirs to the one that made the id, and it answers with the list.
#pragma once

#include <vector>

#include "ccl/mpi/library.h"

namespace dicomm::mpi {

// What a CclId holds.
struct Id {
  char magic[8];
  uint64_t nonce;      // of this group's: messages of another are passed over
  int32_t world_rank;  // of the rank that made it
  int32_t world_size;
  int32_t tag;  // on MPI_COMM_WORLD; tag + 1 is the group's, too

  static Id make(const Library &library);
  bool valid() const;
};

// world_ranks: by rank of the group. TIMED_OUT when a rank did not come. INVALID_ARGUMENT, on every rank,
// when some of them are one process.
Status meet(const Library &library, const Id &id, int rank, int size, Nanos deadline,
            std::vector<int> &world_ranks);

}  // namespace dicomm::mpi
