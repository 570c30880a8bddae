// Communicator::split: the members agree over the parent itself, no store is needed.

#include <algorithm>

#include "comm/communicator.h"

namespace dicomm {

namespace {

struct Choice {
  int64_t color;
  int64_t key;
};

// The same on all ranks of a color; different for every split and every color. splitmix64's finalizer.
uint64_t child_id(uint64_t parent, uint64_t split, int32_t color) {
  uint64_t x =
      parent + 0x9e3779b97f4a7c15u * (split << 32 | static_cast<uint32_t>(color) | uint64_t{1} << 63);
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

}  // namespace

Status Communicator::split(int32_t color, int32_t key, const dicomm_comm_options *options,
                           std::unique_ptr<Communicator> &out) {
  Setup child;
  child.timeout = setup_.timeout;
  child.algorithms = setup_.algorithms;
  child.wire = setup_.wire;
  Nanos init = child.timeout;
  if (options != nullptr) {
    if (options->timeout_ns != DICOMM_TIMEOUT_DEFAULT) init = child.timeout = options->timeout_ns;
    if (options->init_timeout_ns != DICOMM_TIMEOUT_DEFAULT) init = options->init_timeout_ns;
    if (options->algorithms != nullptr && options->algorithms[0] != 0) child.algorithms = options->algorithms;
    if (options->name != nullptr) child.name = options->name;
  }
  Rules rules;
  DICOMM_TRY(Rules::parse(child.algorithms, rules));
  const Nanos deadline = init == kNever ? kNever : deadline_after(init);

  Choice mine{color, key};
  std::vector<Choice> all(static_cast<size_t>(size()));
  const dicomm_block send{&mine, 2, nullptr};
  const dicomm_block recv{all.data(), 2 * size(), nullptr};
  dicomm_op op{};
  op.size = sizeof op;
  op.opcode = DICOMM_ALLGATHER;
  op.dtype = DICOMM_INT64;
  op.send = &send;
  op.recv = &recv;
  op.nsend = op.nrecv = 1;
  op.timeout_ns = init == kNever ? int64_t{DICOMM_TIMEOUT_NEVER} : init;
  DICOMM_TRY(finish(op));
  const uint64_t id = child_id(setup_.id, ++splits_, color);
  if (color < 0) return {};

  std::vector<int> members;
  for (int r = 0; r < size(); ++r) {
    if (all[static_cast<size_t>(r)].color == color) members.push_back(r);
  }
  std::ranges::stable_sort(members, {}, [&](int r) { return all[static_cast<size_t>(r)].key; });
  child.id = id;
  for (const int r : members) child.peers.push_back(setup_.peers[static_cast<size_t>(r)]);
  child.rank = static_cast<int>(std::ranges::find(members, rank()) - members.begin());
  child.topology = part_of(setup_.topology, members);
  auto made = std::make_unique<Communicator>(context_, std::move(child));
  DICOMM_TRY(made->open(deadline));
  out = std::move(made);
  return {};
}

}  // namespace dicomm
