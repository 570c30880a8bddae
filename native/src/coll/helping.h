// What reducers do for workers (Problem::role): which part of the buffer they sum up.
//
// The loads are those of a parameter server with helpers (BytePS, OSDI 2020): as much goes out of and into
// each of n groups of workers and k groups of reducers as is possible for the busiest of them. Pure.
#pragma once

#include "coll/groups.h"

namespace dicomm::coll {

// The pieces of a buffer, at home with workers and reducers. Without reducers: an equal share with each.
Pieces cut_for_allreduce(const Groups &groups, const Problem &problem);
// None at home in the root's group, which gets all results, where there is another.
Pieces cut_for_reduce(const Groups &groups, const Problem &problem);
// To reducers without a piece, that the operation was called: a message without data from one of the workers.
void tell_reducers(Schedule &schedule, const Groups &groups, const Pieces &pieces, int rank);

}  // namespace dicomm::coll
