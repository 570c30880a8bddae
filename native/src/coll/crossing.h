// Steps of one piece between groups: each byte crosses from a group to another once.
#pragma once

#include "coll/fold.h"
#include "coll/groups.h"

namespace dicomm::coll {

class Crossing {
 public:
  Crossing(Schedule &schedule, const Problem &problem, const Groups &groups, uint64_t room);
  // Do the inputs of a group's members cross as they are, because they are fewer bytes than their sum in the
  // accumulation type? Not where a reducer would have to know by what they are multiplied.
  bool as_inputs(int group) const;
  // Every member's `input` to rank `to` of another group, where `fold` gets it in rank order. `read` becomes
  // the step that reads this rank's.
  void inputs(int group, Span input, int to, Fold &fold, uint32_t &read);
  // What `mine` holds at rank `from` of the buffer's elements [at, at + count) to rank `to`, unfinished,
  // where `theirs` gets it.
  void partial(int from, int to, uint64_t at, uint64_t count, Fold &mine, Fold &theirs);
  // `mine`, the elements from `at` on, to `peer` and the peer's to this rank. `sent`: it has left. What is
  // here called mine is what the peer has of it.
  struct Exchanged {
    uint32_t sent;
    Operand mine, theirs;
  };
  Exchanged exchange(int peer, const Operand &mine, uint64_t at);
  // From the piece's own driver, who has it in `source` after `ready`, to the drivers of all other groups but
  // `except`; they let go of what was in `target` after `free`. Returns since when this rank has it, and then
  // the steps that read `source`.
  Schedule::After spread(const Piece &piece, Span source, Span target, uint32_t ready, uint32_t free,
                         int except = -1);

 private:
  bool encodes() const { return wire_.has_value(); }
  Operand encode(const Operand &from, uint64_t at);
  Operand decode(const Operand &wire, bool input);
  Operand receive(int peer, uint64_t count, bool input);

  Schedule &schedule_;
  const Groups &groups_;
  const int rank_;
  const size_t element_, wide_;
  const bool prepared_;  // inputs leave as what they count for
  const std::optional<dicomm_dtype> wire_;
  Slots arrived_inputs_, arrived_partials_, leaving_;
  Slots wire_out_, wire_in_, kept_inputs_, kept_partials_;
};

}  // namespace dicomm::coll
