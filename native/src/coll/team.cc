#include "coll/team.h"

#include <algorithm>

namespace dicomm::coll {

namespace {

constexpr auto kNone = Schedule::kNone;

// Binomial tree: a place's parent clears its lowest set bit; children come nearest, that is smallest, first.
int parent_of(int place) { return place & (place - 1); }

std::vector<int> children_of(int place, int size) {
  std::vector<int> out;
  for (int mask = 1; place + mask < size && (place & mask) == 0; mask *= 2) out.push_back(place + mask);
  return out;
}

bool is_raw(const Raw &raw, int place) { return raw.empty() || raw[static_cast<size_t>(place)]; }

Span scratch(Schedule &schedule, Space space, uint64_t count) {
  uint64_t &total = schedule.scratch(space);
  total += count;
  return {space, total - count, count};
}

}  // namespace

Team everybody(const Problem &problem, int first) {
  Team team;
  for (int i = 0; i < problem.size; ++i) team.ranks.push_back(wrap(first + i, problem.size));
  team.me = wrap(problem.rank - first, problem.size);
  return team;
}

Team team_of(const std::vector<int> &ranks, int first, int rank) {
  Team team{ranks, -1};
  std::rotate(team.ranks.begin(), std::find(team.ranks.begin(), team.ranks.end(), first), team.ranks.end());
  const auto me = std::find(team.ranks.begin(), team.ranks.end(), rank);
  if (me != team.ranks.end()) team.me = static_cast<int>(me - team.ranks.begin());
  return team;
}

uint32_t tree_reduce(Schedule &schedule, const Team &team, const Raw &raw, uint64_t count, Fold &sum) {
  for (const int child : children_of(team.me, team.size())) {
    const bool as_input = is_raw(raw, child) && children_of(child, team.size()).empty();
    const Span place = scratch(schedule, as_input ? Space::stage : Space::acc, count);
    sum.add({place, schedule.recv(team.rank(child), place)});
  }
  if (team.me == 0) return kNone;
  const Operand mine = sum.end();
  return schedule.send(team.rank(parent_of(team.me)), mine.span, {mine.ready});
}

Schedule::After tree_broadcast(Schedule &schedule, const Team &team, Span span, Schedule::After here,
                               uint32_t free) {
  if (team.me != 0) here = {schedule.recv(team.rank(parent_of(team.me)), span, {free})};
  const std::vector<int> children = children_of(team.me, team.size());
  for (auto child = children.rbegin(); child != children.rend(); ++child) {  // the largest subtree first
    schedule.send(team.rank(*child), span, here);
  }
  return here;
}

Schedule::After tree_arrive(Schedule &schedule, const Team &team) {
  Schedule::After here;
  for (const int child : children_of(team.me, team.size())) {
    here.push_back(schedule.recv(team.rank(child), kNothing));
  }
  if (team.me != 0) schedule.send(team.rank(parent_of(team.me)), kNothing, here);
  return here;
}

// After the round of distance d a member has heard, directly or not, from the 2d - 1 members before it.
Schedule::After dissemination(Schedule &schedule, const Team &team, Schedule::After heard) {
  for (int distance = 1; distance < team.size(); distance *= 2) {
    schedule.send(team.rank(wrap(team.me + distance, team.size())), kNothing, heard);
    heard.push_back(schedule.recv(team.rank(wrap(team.me - distance, team.size())), kNothing));
  }
  return heard;
}

// When size is not a power of two, the first 2 * extra members fold in pairs: the even one gives its operand
// to the odd one, takes no part, and gets the result at the end. The others are numbered v = 0 .. power - 1
// in the team's order, so that a partial result always covers consecutive members and "lower op higher" is
// the same expression on both partners.
uint32_t doubling(Schedule &schedule, const Team &team, const Raw &raw, const Operand &own, Span dst,
                  bool finish) {
  const int size = team.size();
  const uint64_t count = dst.count;
  int power = 1;
  while (power * 2 <= size) power *= 2;
  const int extra = size - power;
  if (size == 1) return schedule.copy(dst, own.span, finish, {own.ready});
  const bool folded = team.me < 2 * extra;
  if (folded && team.me % 2 == 0) {
    const uint32_t sent = schedule.send(team.rank(team.me + 1), own.span, {own.ready});
    return schedule.recv(team.rank(team.me + 1), dst, {sent});
  }

  // Partial results of this rank and of its partners in alternate rounds; raw input in stage.
  Slots ours(schedule, Space::acc, count, 2), theirs(schedule, Space::acc, count, 2);
  Slots inputs(schedule, Space::stage, count, 1);
  const auto receive = [&](int place, bool as_input) {
    return (as_input ? inputs : theirs).receive(team.rank(place), count);
  };
  Operand mine = own;
  uint32_t own_sent = kNone;
  mine.used = nullptr;
  if (folded) {
    const Operand other = receive(team.me - 1, is_raw(raw, team.me - 1));
    const Slots::Slot slot = ours.take(count);
    mine = {slot.span, schedule.reduce(slot.span, other.span, own.span, false, {other.ready, own.ready}),
            &slot.used};
    *other.used = mine.ready;
  }
  const int v = folded ? team.me / 2 : team.me - extra;
  const auto place_of = [&](int w) { return w < extra ? 2 * w + 1 : w + extra; };
  for (int mask = 1; mask < power; mask *= 2) {
    const int partner = place_of(v ^ mask);
    const uint32_t sent = schedule.send(team.rank(partner), mine.span, {mine.ready});
    if (mine.used == nullptr) own_sent = sent;
    const bool first = mask == 1 && (v ^ mask) >= extra;
    const Operand other = receive(partner, first && is_raw(raw, partner));
    const bool last = mask * 2 == power;
    const Span a = v < (v ^ mask) ? mine.span : other.span;
    const Span b = v < (v ^ mask) ? other.span : mine.span;
    Operand next{dst, kNone, nullptr};
    Schedule::After after = {mine.ready, other.ready};
    if (last) {
      after.push_back(own_sent);  // dst may be the memory of input
    } else {
      const Slots::Slot slot = ours.take(count);
      after.push_back(slot.used);
      next = {slot.span, kNone, &slot.used};
    }
    next.ready = schedule.reduce(next.span, a, b, last && finish, after);
    *other.used = next.ready;
    // What this round read of ours is free when it has been both sent and reduced.
    if (mine.used != nullptr) *mine.used = sent;
    mine = next;
  }
  if (folded) schedule.send(team.rank(team.me - 1), dst, {mine.ready});
  return mine.ready;
}

Schedule::After bruck(Schedule &schedule, const Team &team, const Blocks &held,
                      const Schedule::After &ready) {
  const int size = team.size();
  Schedule::After here = ready;
  for (int distance = 1; distance < size; distance *= 2) {
    const int n = std::min(distance, size - distance);
    schedule.send(team.rank(wrap(team.me - distance, size)), {Space::stage, 0, held.range(0, n)}, here);
    here.push_back(schedule.recv(team.rank(wrap(team.me + distance, size)),
                                 {Space::stage, held.offset(distance), held.range(distance, n)}));
  }
  return here;
}

}  // namespace dicomm::coll
