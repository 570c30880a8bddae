// The algorithms that know hosts: many layouts on symbolic data, and the bytes that cross between hosts.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "base/operations.h"
#include "coll_cases.h"
#include "simulate.h"

using namespace dicomm;
using simulate::Case;
using simulate::problems;

namespace {

// Ranks per host, and whether rank order goes from host to host instead of through one after the other.
struct Layout {
  std::vector<int> ranks;
  bool interleaved = false;
  std::vector<int> host_of_rank() const {
    std::vector<int> left = ranks, out;
    const int hosts = static_cast<int>(left.size());
    for (int h = 0; std::any_of(left.begin(), left.end(), [](int n) { return n > 0; });) {
      size_t host = static_cast<size_t>(h);
      if (left[host] > 0) {
        out.push_back(h);
        --left[host];
      }
      if (interleaved || left[host] == 0) h = (h + 1) % hosts;
    }
    return out;
  }
};

const std::vector<Layout> kLayouts = {
    {{1}},          {{4}},          {{1, 1}},          {{1, 1, 1}},       {{2, 2}},
    {{2, 2}, true}, {{3, 1}},       {{1, 3}, true},    {{2, 1, 1}},       {{1, 1, 5}},
    {{5, 1, 1}},    {{3, 2}, true}, {{2, 2, 2}, true}, {{4, 3, 1, 2}},    {{1, 4, 2, 3}, true},
    {{7, 8}},       {{9, 8}, true}, {{3, 3, 3, 3}},    {{1, 2, 3, 4, 5}}, {{5, 4, 3, 2, 1}, true},
};

std::vector<Case> cases(dicomm_opcode op, int size) {
  const bool rooted = op == DICOMM_BROADCAST || op == DICOMM_REDUCE;
  const bool blocks = op == DICOMM_ALLGATHER || op == DICOMM_REDUCE_SCATTER;
  std::vector<Case> out;
  for (const int root : rooted ? std::vector<int>{0, size / 2, size - 1} : std::vector<int>{0}) {
    for (const bool widened : {false, true}) {
      if (widened && !is_reduction(op)) continue;
      for (const uint64_t count : {0, 1, 7, 50}) out.push_back({size, count, false, root, widened, 2});
      if (widened) out.push_back({size, 5, false, root, widened, 1});
      if (blocks) out.push_back({size, 6, true, root, widened, 2});
      // Elements so large that each is a piece, and more of them than slots.
      const uint64_t many = blocks ? 40 : 150;
      if (size <= 9) out.push_back({size, many, false, root, widened, size_t{1} << 18});
    }
    if (blocks && size <= 9) out.push_back({size, 20, true, root, false, size_t{1} << 18});
  }
  return out;
}

uint64_t bytes_of(const Problem &p, const Span &span) {
  return span.count * (span.space == Space::acc && p.widened ? sizeof(float) : p.element);
}

// What crosses between hosts.
struct Crossed {
  std::vector<uint64_t> out, in;  // bytes, by host
  std::vector<uint64_t> by_rank;  // bytes, sent
  uint64_t messages = 0;
};

Crossed crossed(dicomm_opcode op, const char *name, const Layout &layout, const Case &c) {
  const std::vector<int> hosts = layout.host_of_rank();
  const Algorithm *algorithm = find_algorithm(op, name);
  REQUIRE(algorithm != nullptr);
  const auto job = simulate::make_job(*algorithm, problems(op, c), topology_of_hosts(hosts), false);
  Crossed result;
  result.out.resize(layout.ranks.size());
  result.in.resize(layout.ranks.size());
  result.by_rank.resize(hosts.size());
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    for (const Step &step : job.schedules[rank].steps) {
      if (step.kind != StepKind::send) continue;
      const size_t from = static_cast<size_t>(hosts[rank]);
      const size_t to = static_cast<size_t>(hosts[static_cast<size_t>(step.peer)]);
      if (from == to) continue;
      const uint64_t bytes = bytes_of(job.problems[rank], step.a);
      result.out[from] += bytes;
      result.in[to] += bytes;
      result.by_rank[rank] += bytes;
      ++result.messages;
    }
  }
  return result;
}

bool near(double value, double want, double slack) { return want - slack <= value && value <= want + slack; }

int total(const Layout &layout) {
  int n = 0;
  for (const int ranks : layout.ranks) n += ranks;
  return n;
}

void check_layouts(dicomm_opcode op) {
  std::mt19937 random(20240608);
  for (const Algorithm &algorithm : algorithms()) {
    const std::string name = algorithm.name;
    if (algorithm.op != op || (name != "leaders" && name != "two_level")) continue;
    for (const Layout &layout : kLayouts) {
      const std::vector<int> hosts = layout.host_of_rank();
      CAPTURE(hosts);
      for (const Case &c : cases(op, total(layout))) {
        std::vector<Problem> ranks = problems(op, c);
        simulate::check(algorithm, ranks, topology_of_hosts(hosts), random);
        if (!is_reduction(op) || c.widened) continue;
        for (Problem &p : ranks) p.wire = DICOMM_BFLOAT16;
        simulate::check(algorithm, ranks, topology_of_hosts(hosts), random);
      }
    }
  }
}

}  // namespace

TEST_CASE("barrier on hosts") { check_layouts(DICOMM_BARRIER); }
TEST_CASE("broadcast on hosts") { check_layouts(DICOMM_BROADCAST); }
TEST_CASE("allreduce on hosts") { check_layouts(DICOMM_ALLREDUCE); }
TEST_CASE("reduce on hosts") { check_layouts(DICOMM_REDUCE); }
TEST_CASE("allgather on hosts") { check_layouts(DICOMM_ALLGATHER); }
TEST_CASE("reduce_scatter on hosts") { check_layouts(DICOMM_REDUCE_SCATTER); }

// S over H hosts: 2 (H - 1) / H of S each way, of which every rank of a host moves its part.
TEST_CASE("allreduce crosses between hosts as rarely as can be") {
  constexpr uint64_t kCount = 9 << 20;  // 36 MiB
  constexpr double kBytes = 4.0 * kCount;
  const Crossed two = crossed(DICOMM_ALLREDUCE, "two_level", {{2, 2}}, {4, 8 << 20, false, 0, false, 4});
  CHECK(two.out == std::vector<uint64_t>{32 << 20, 32 << 20});
  CHECK(two.in == two.out);
  for (const Layout &layout : kLayouts) {
    const double hosts = static_cast<double>(layout.ranks.size());
    const Crossed got =
        crossed(DICOMM_ALLREDUCE, "two_level", layout, {total(layout), kCount, false, 0, false, 4});
    const double bound = 2 * (hosts - 1) / hosts * kBytes;
    const std::vector<int> place = layout.host_of_rank();
    CAPTURE(place);
    for (size_t h = 0; h < layout.ranks.size(); ++h) {
      CHECK(near(static_cast<double>(got.out[h]), bound, 1e-4 * bound));
      CHECK(near(static_cast<double>(got.in[h]), bound, 1e-4 * bound));
    }
    for (size_t rank = 0; rank < place.size(); ++rank) {
      const double share = bound / layout.ranks[static_cast<size_t>(place[rank])];
      CHECK(near(static_cast<double>(got.by_rank[rank]), share, 0.1 * share + (1 << 20)));
    }
  }
}

// Elements of 2 bytes are added up in 4, those of 1 byte too: sums cross where they are fewer bytes than what
// they are sums of. Results cross as they are.
TEST_CASE("of inputs and wide sums the smaller ones cross") {
  const auto out = [](const Layout &layout, size_t element) {
    const Case c{total(layout), 8 << 20, false, 0, true, element};
    std::vector<double> per_byte;
    for (const uint64_t bytes : crossed(DICOMM_ALLREDUCE, "two_level", layout, c).out) {
      per_byte.push_back(static_cast<double>(bytes) / static_cast<double>(element << 23));
    }
    return per_byte;
  };
  CHECK(out({{1, 1}}, 2) == std::vector<double>{1, 1});
  CHECK(out({{2, 2}}, 2) == std::vector<double>{1.5, 1.5});
  CHECK(out({{4, 4}}, 2) == std::vector<double>{1.5, 1.5});
  CHECK(out({{2, 2}}, 1) == std::vector<double>{1.5, 1.5});
  CHECK(out({{4, 2}}, 1) == std::vector<double>{2.5, 1.5});
}

TEST_CASE("of blocks, each host gets what it needs once") {
  for (const Layout &layout : kLayouts) {
    const Case c{total(layout), 300000, true, 0, false, 4};
    const std::vector<int> place = layout.host_of_rank();
    const std::vector<uint64_t> counts = problems(DICOMM_ALLGATHER, c)[0].counts;
    const size_t hosts = layout.ranks.size();
    std::vector<uint64_t> own(hosts);
    uint64_t all = 0;
    for (size_t rank = 0; rank < place.size(); ++rank) {
      own[static_cast<size_t>(place[rank])] += 4 * counts[rank];
      all += 4 * counts[rank];
    }
    const Crossed gathered = crossed(DICOMM_ALLGATHER, "two_level", layout, c);
    const Crossed scattered = crossed(DICOMM_REDUCE_SCATTER, "two_level", layout, c);
    for (size_t h = 0; h < hosts; ++h) {
      CHECK(gathered.in[h] == all - own[h]);
      CHECK(gathered.out[h] == (hosts - 1) * own[h]);
      CHECK(scattered.out[h] == all - own[h]);
      CHECK(scattered.in[h] == (hosts - 1) * own[h]);
    }
  }
}

TEST_CASE("with a root, no host sends or receives more than the buffer") {
  constexpr uint64_t kCount = 3 << 20, kBytes = 4 * kCount;
  for (const Layout &layout : kLayouts) {
    for (const int root : {0, total(layout) - 1}) {
      const Case c{total(layout), kCount, false, root, false, 4};
      const size_t home = static_cast<size_t>(layout.host_of_rank()[static_cast<size_t>(root)]);
      const Crossed down = crossed(DICOMM_BROADCAST, "two_level", layout, c);
      const Crossed up = crossed(DICOMM_REDUCE, "two_level", layout, c);
      for (size_t h = 0; h < layout.ranks.size(); ++h) {
        CHECK(down.in[h] == (h == home ? 0 : kBytes));
        CHECK(up.out[h] == (h == home ? 0 : kBytes));
        CHECK(down.out[h] <= kBytes);
        CHECK(up.in[h] <= kBytes);
      }
    }
  }
}

TEST_CASE("small messages cross in log2(hosts) rounds") {
  const Layout layout{{4, 4, 4, 4, 4, 4, 4, 4}};
  const Case c{32, 16, false, 5, false, 4};
  CHECK(crossed(DICOMM_BARRIER, "leaders", layout, c).messages == 8 * 3);
  CHECK(crossed(DICOMM_ALLREDUCE, "leaders", layout, c).messages == 8 * 3);
  CHECK(crossed(DICOMM_ALLGATHER, "leaders", layout, c).messages == 8 * 3);
  CHECK(crossed(DICOMM_REDUCE_SCATTER, "leaders", layout, c).messages == 8 * 3);
  CHECK(crossed(DICOMM_BROADCAST, "leaders", layout, c).messages == 7);
  CHECK(crossed(DICOMM_REDUCE, "leaders", layout, c).messages == 7);
}

TEST_CASE("scratch does not grow with the buffer") {
  const auto scratch = [](dicomm_opcode op, const char *name, const std::vector<int> &hosts, uint64_t count) {
    const int size = static_cast<int>(hosts.size());
    const uint64_t each = op == DICOMM_REDUCE_SCATTER ? count / hosts.size() : count;
    const auto all = problems(op, {size, each, false, 0, false, 4});
    const Schedule schedule = find_algorithm(op, name)->build(all[1], topology_of_hosts(hosts));
    return 4 * (schedule.scratch(Space::acc) + schedule.scratch(Space::stage));
  };
  for (const dicomm_opcode op : {DICOMM_ALLREDUCE, DICOMM_REDUCE, DICOMM_REDUCE_SCATTER}) {
    CAPTURE(op);
    for (const uint64_t count : {4 << 20, 16 << 20}) {
      CHECK(scratch(op, "direct", {0, 0}, count) <= 4 << 20);
      CHECK(scratch(op, "two_level", {0, 0, 1, 1}, count) <= 8 << 20);
      CHECK(scratch(op, "two_level", {0, 0, 1, 1, 2, 2, 3, 3}, count) <= 8 << 20);
    }
  }
}
