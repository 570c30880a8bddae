// The table of algorithms; the only file that names them.
#include "coll/build.h"

namespace dicomm {

namespace {

using namespace coll;

constexpr Algorithm kAlgorithms[] = {
    {DICOMM_BARRIER, "direct", "one round: every rank tells every other", always, barrier_direct, true},
    {DICOMM_BARRIER, "dissemination", "log2(size) rounds, every rank to a rank twice as far each time",
     always, barrier_dissemination},
    {DICOMM_BARRIER, "tree", "up a binomial tree to rank 0 and down again", always, barrier_tree},
    {DICOMM_BARRIER, "leaders", "up a tree to a leader per host, rounds between the leaders, down again",
     always, barrier_leaders},
    {DICOMM_BROADCAST, "direct", "one round: the root sends the buffer to every rank", always,
     broadcast_direct, true},
    {DICOMM_BROADCAST, "binomial", "down a binomial tree, whole buffer per message", always,
     broadcast_binomial},
    {DICOMM_BROADCAST, "chain", "rank to rank in chunks, every rank forwards while it receives", always,
     broadcast_chain},
    {DICOMM_BROADCAST, "scatter_allgather", "the root sends each rank a shard, ranks exchange shards", always,
     broadcast_scatter_allgather},
    {DICOMM_BROADCAST, "leaders", "down a tree to a leader per host, then down one in each host", always,
     broadcast_leaders},
    {DICOMM_BROADCAST, "two_level", "in pieces, each to one rank per host and from there to its host", always,
     broadcast_two_level},
    {DICOMM_BROADCAST, "islands",
     "from the root by its island's library; in pieces, each to one rank of every other island", islands,
     broadcast_islands},
    {DICOMM_BROADCAST, "library", "one island: by its library", one_island, broadcast_library},
    {DICOMM_ALLREDUCE, "doubling", "whole buffer with a partner twice as far each round", always,
     allreduce_doubling},
    {DICOMM_ALLREDUCE, "gather_all", "one round: every rank gets every input and reduces in rank order",
     always, allreduce_gather_all, true},
    {DICOMM_ALLREDUCE, "direct", "each rank reduces its shard of all inputs, then ranks exchange results",
     always, allreduce_direct},
    {DICOMM_ALLREDUCE, "ring", "shards go round once to be reduced and once to be spread", always,
     allreduce_ring},
    {DICOMM_ALLREDUCE, "leaders", "reduced to a leader per host, doubling between the leaders, down again",
     always, allreduce_leaders},
    {DICOMM_ALLREDUCE, "two_level",
     "in pieces: reduced inside each host, then between one rank per host, then spread", always,
     allreduce_two_level},
    {DICOMM_ALLREDUCE, "islands",
     "in pieces: reduced by each island's library, then between one rank per island, then spread", islands,
     allreduce_islands},
    {DICOMM_ALLREDUCE, "library", "one island: by its library", one_island, allreduce_library},
    {DICOMM_REDUCE, "gather_all", "one round: the root gets every input and reduces in rank order", always,
     reduce_gather_all, true},
    {DICOMM_REDUCE, "binomial", "up a binomial tree, whole buffer per message", always, reduce_binomial},
    {DICOMM_REDUCE, "direct", "each rank reduces its shard of all inputs and sends it to the root", always,
     reduce_direct},
    {DICOMM_REDUCE, "leaders", "up a tree to a leader per host, then up one to the root", always,
     reduce_leaders},
    {DICOMM_REDUCE, "two_level", "in pieces: reduced inside each host, then on one rank near the root",
     always, reduce_two_level},
    {DICOMM_REDUCE, "islands", "in pieces: reduced by each island's library, then on one rank near the root",
     islands, reduce_islands},
    {DICOMM_REDUCE, "library", "one island: by its library", one_island, reduce_library},
    {DICOMM_ALLGATHER, "bruck", "log2(size) rounds, twice as many blocks each time", always, allgather_bruck},
    {DICOMM_ALLGATHER, "direct", "every rank sends its block to every other at once", always,
     allgather_direct, true},
    {DICOMM_GATHER, "library", "one island: by its library", one_island, gather_library},
    {DICOMM_ALLGATHER, "ring", "blocks go round from neighbour to neighbour in chunks", always,
     allgather_ring},
    {DICOMM_ALLGATHER, "leaders", "gathered on a leader per host, exchanged between the leaders, down again",
     always, allgather_leaders},
    {DICOMM_ALLGATHER, "two_level", "in pieces, each to one rank per host and from there to its host", always,
     allgather_two_level},
    {DICOMM_ALLGATHER, "islands",
     "in pieces, each to one rank per island and from there to its island by its library", islands,
     allgather_islands},
    {DICOMM_ALLGATHER, "library", "one island: by its library", one_island, allgather_library},
    {DICOMM_REDUCE_SCATTER, "direct", "each rank gets its block of all inputs and reduces in rank order",
     always, reduce_scatter_direct, true},
    {DICOMM_SCATTER, "library", "one island: by its library", one_island, scatter_library},
    {DICOMM_REDUCE_SCATTER, "ring", "partial results go round from neighbour to neighbour in chunks", always,
     reduce_scatter_ring},
    {DICOMM_REDUCE_SCATTER, "leaders",
     "reduced to a leader per host, doubling between the leaders, then handed out", always,
     reduce_scatter_leaders},
    {DICOMM_REDUCE_SCATTER, "two_level",
     "in pieces: reduced inside each host, then on the rank that gets them", always,
     reduce_scatter_two_level},
    {DICOMM_REDUCE_SCATTER, "islands",
     "in pieces: reduced by each island's library, then on the rank that gets them", islands,
     reduce_scatter_islands},
    {DICOMM_REDUCE_SCATTER, "library", "one island: by its library", one_island, reduce_scatter_library},
    {DICOMM_ALLTOALL, "direct", "all blocks at once; each crosses between hosts once, as on two levels",
     always, alltoall_direct, true},
    {DICOMM_ALLTOALL, "pairwise", "one partner at a time", always, alltoall_pairwise},
    {DICOMM_ALLTOALL, "library", "one island: by its library", one_island, alltoall_library},
    {DICOMM_GATHER, "binomial", "up a binomial tree, more blocks per message nearer the root", even,
     gather_binomial},
    {DICOMM_GATHER, "direct", "every rank sends its block to the root", always, gather_direct, true},
    {DICOMM_SCATTER, "binomial", "down a binomial tree, fewer blocks per message farther from the root", even,
     scatter_binomial},
    {DICOMM_SCATTER, "direct", "the root sends every rank its block", always, scatter_direct, true},
};

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

const Algorithm *find_algorithm(dicomm_opcode op, std::string_view name) {
  for (const Algorithm &algorithm : kAlgorithms) {
    if (algorithm.op == op && name == algorithm.name) return &algorithm;
  }
  return nullptr;
}

}  // namespace dicomm
