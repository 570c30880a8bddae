#include "path/rules.h"

#include <algorithm>
#include <cctype>
#include <iomanip>
#include <sstream>

#include "base/names.h"
#include "coll/arena.h"
#include "path/words.h"

namespace dicomm {

namespace {

constexpr uint64_t kAnyBytes = std::numeric_limits<uint64_t>::max();
constexpr int kAnySize = std::numeric_limits<int>::max();
constexpr uint64_t K = uint64_t{1} << 10;
constexpr uint64_t M = uint64_t{1} << 20;

// Small messages cost rounds, large ones bytes. Between hosts both cost most: several ranks per host make
// their host's part of the way together. Dtypes that accumulate in a wider type keep to the algorithms that
// move raw inputs: partial results would travel at two or four times the size. Rows of a library apply where
// one, or one per island, knows the operation. Rows of the arena apply where the ranks have one: there a
// round costs a rank one write, however many read it. Only the first matching row of an op counts; the last
// one covers everything, but for operations that reducers help with, which have rows of their own.
struct BuiltIn {
  dicomm_opcode op;
  uint64_t max_bytes;
  int max_size;
  bool widened_only;
  const char *algorithm;
  int min_hosts = 1;
  uint64_t min_bytes = 0;
  bool arena = false;
};

// Below this, starting copies from and to a chip for each step of a library's costs more than it saves.
constexpr uint64_t kIslands = 128 * K;

constexpr BuiltIn kBuiltIn[] = {
    {DICOMM_BROADCAST, kAnyBytes, kAnySize, false, "library"},
    {DICOMM_ALLREDUCE, kAnyBytes, kAnySize, false, "library"},
    {DICOMM_REDUCE, kAnyBytes, kAnySize, false, "library"},
    {DICOMM_ALLGATHER, kAnyBytes, kAnySize, false, "library"},
    {DICOMM_REDUCE_SCATTER, kAnyBytes, kAnySize, false, "library"},
    {DICOMM_ALLTOALL, kAnyBytes, kAnySize, false, "library"},
    {DICOMM_GATHER, kAnyBytes, kAnySize, false, "library"},
    {DICOMM_SCATTER, kAnyBytes, kAnySize, false, "library"},

    {DICOMM_BROADCAST, kAnyBytes, kAnySize, false, "islands", 1, kIslands},
    {DICOMM_ALLREDUCE, kAnyBytes, kAnySize, false, "islands", 1, kIslands},
    {DICOMM_REDUCE, kAnyBytes, kAnySize, false, "islands", 1, kIslands},
    {DICOMM_ALLGATHER, kAnyBytes, kAnySize, false, "islands", 1, kIslands},
    {DICOMM_REDUCE_SCATTER, kAnyBytes, kAnySize, false, "islands", 1, kIslands},

    {DICOMM_ALLREDUCE, kAnyBytes, kAnySize, false, "reducers_islands", 1, kIslands},
    {DICOMM_ALLREDUCE, 64 * K, kAnySize, false, "workers"},
    {DICOMM_ALLREDUCE, kAnyBytes, 32, false, "reducers"},
    {DICOMM_ALLREDUCE, 1 * M, kAnySize, false, "workers"},
    {DICOMM_ALLREDUCE, kAnyBytes, kAnySize, false, "reducers"},
    {DICOMM_REDUCE, kAnyBytes, kAnySize, false, "reducers_islands", 1, kIslands},
    {DICOMM_REDUCE, 64 * K, kAnySize, false, "workers"},
    {DICOMM_REDUCE, kAnyBytes, 32, false, "reducers"},
    {DICOMM_REDUCE, 1 * M, kAnySize, false, "workers"},
    {DICOMM_REDUCE, kAnyBytes, kAnySize, false, "reducers"},

    {DICOMM_BARRIER, kAnyBytes, kAnySize, false, "leaders", 2},
    {DICOMM_BARRIER, kAnyBytes, kAnySize, false, "direct", 1, 0, true},
    {DICOMM_BARRIER, kAnyBytes, kAnySize, false, "dissemination"},

    {DICOMM_BROADCAST, 64 * K, kAnySize, false, "leaders", 2},
    {DICOMM_BROADCAST, kAnyBytes, 32, false, "two_level", 2},
    {DICOMM_BROADCAST, 1 * M, kAnySize, false, "leaders", 2},
    {DICOMM_BROADCAST, kAnyBytes, kAnySize, false, "two_level", 2},
    {DICOMM_BROADCAST, 32 * K, 2, false, "direct", 1, 0, true},
    {DICOMM_BROADCAST, 16 * K, kAnySize, false, "direct", 1, 0, true},
    {DICOMM_BROADCAST, 64 * K, kAnySize, false, "binomial"},
    {DICOMM_BROADCAST, kAnyBytes, 2, false, "binomial"},
    {DICOMM_BROADCAST, kAnyBytes, 32, false, "scatter_allgather"},
    {DICOMM_BROADCAST, 4 * M, kAnySize, false, "binomial"},
    {DICOMM_BROADCAST, kAnyBytes, kAnySize, false, "chain"},

    {DICOMM_ALLREDUCE, 64 * K, kAnySize, false, "leaders", 2},
    {DICOMM_ALLREDUCE, kAnyBytes, 32, false, "two_level", 2},
    {DICOMM_ALLREDUCE, 1 * M, kAnySize, false, "leaders", 2},
    {DICOMM_ALLREDUCE, kAnyBytes, kAnySize, false, "two_level", 2},
    {DICOMM_ALLREDUCE, 32 * K, 2, false, "gather_all", 1, 0, true},
    {DICOMM_ALLREDUCE, 16 * K, 4, false, "gather_all", 1, 0, true},
    {DICOMM_ALLREDUCE, 2 * K, kAnySize, false, "gather_all", 1, 0, true},
    {DICOMM_ALLREDUCE, 4 * K, 4, false, "gather_all"},
    {DICOMM_ALLREDUCE, 16 * K, 8, true, "gather_all"},
    {DICOMM_ALLREDUCE, kAnyBytes, 32, true, "direct"},
    {DICOMM_ALLREDUCE, 32 * K, kAnySize, false, "doubling"},
    {DICOMM_ALLREDUCE, kAnyBytes, 16, false, "direct"},
    {DICOMM_ALLREDUCE, 1 * M, kAnySize, false, "doubling"},
    {DICOMM_ALLREDUCE, kAnyBytes, kAnySize, false, "ring"},

    {DICOMM_REDUCE, 64 * K, kAnySize, false, "leaders", 2},
    {DICOMM_REDUCE, kAnyBytes, 32, false, "two_level", 2},
    {DICOMM_REDUCE, 1 * M, kAnySize, false, "leaders", 2},
    {DICOMM_REDUCE, kAnyBytes, kAnySize, false, "two_level", 2},
    {DICOMM_REDUCE, 32 * K, 2, false, "gather_all", 1, 0, true},
    {DICOMM_REDUCE, 16 * K, 4, false, "gather_all", 1, 0, true},
    {DICOMM_REDUCE, 2 * K, kAnySize, false, "gather_all", 1, 0, true},
    {DICOMM_REDUCE, 64 * K, kAnySize, false, "binomial"},
    {DICOMM_REDUCE, kAnyBytes, 32, false, "direct"},
    {DICOMM_REDUCE, 4 * M, kAnySize, false, "binomial"},
    {DICOMM_REDUCE, kAnyBytes, kAnySize, false, "direct"},

    {DICOMM_ALLGATHER, 64 * K, kAnySize, false, "leaders", 2},
    {DICOMM_ALLGATHER, kAnyBytes, 32, false, "two_level", 2},
    {DICOMM_ALLGATHER, 1 * M, kAnySize, false, "leaders", 2},
    {DICOMM_ALLGATHER, kAnyBytes, kAnySize, false, "two_level", 2},
    {DICOMM_ALLGATHER, 64 * K, kAnySize, false, "direct", 1, 0, true},
    {DICOMM_ALLGATHER, kAnyBytes, 8, false, "direct"},
    {DICOMM_ALLGATHER, 64 * K, kAnySize, false, "bruck"},
    {DICOMM_ALLGATHER, kAnyBytes, 32, false, "direct"},
    {DICOMM_ALLGATHER, kAnyBytes, kAnySize, false, "ring"},

    {DICOMM_REDUCE_SCATTER, 64 * K, kAnySize, false, "leaders", 2},
    {DICOMM_REDUCE_SCATTER, kAnyBytes, 32, false, "two_level", 2},
    {DICOMM_REDUCE_SCATTER, 1 * M, kAnySize, false, "leaders", 2},
    {DICOMM_REDUCE_SCATTER, kAnyBytes, kAnySize, false, "two_level", 2},
    {DICOMM_REDUCE_SCATTER, kAnyBytes, 32, false, "direct"},
    {DICOMM_REDUCE_SCATTER, 1 * M, kAnySize, false, "direct"},
    {DICOMM_REDUCE_SCATTER, kAnyBytes, kAnySize, false, "ring"},

    {DICOMM_ALLTOALL, kAnyBytes, 16, false, "direct"},
    {DICOMM_ALLTOALL, kAnyBytes, kAnySize, false, "pairwise"},

    {DICOMM_GATHER, 64 * K, kAnySize, false, "direct", 1, 0, true},
    {DICOMM_GATHER, kAnyBytes, 8, false, "direct"},
    {DICOMM_GATHER, 64 * K, kAnySize, false, "binomial"},
    {DICOMM_GATHER, kAnyBytes, kAnySize, false, "direct"},

    {DICOMM_SCATTER, 64 * K, kAnySize, false, "direct", 1, 0, true},
    {DICOMM_SCATTER, kAnyBytes, 8, false, "direct"},
    {DICOMM_SCATTER, 64 * K, kAnySize, false, "binomial"},
    {DICOMM_SCATTER, kAnyBytes, kAnySize, false, "direct"},
};

std::string_view trim(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

std::string collective_names() {
  std::string names;
  for (int op = DICOMM_BARRIER; op <= DICOMM_SCATTER; ++op) {
    names += (names.empty() ? "" : ", ") + std::string(opcode_name(op));
  }
  return names;
}

std::string algorithm_names(dicomm_opcode op) {
  std::string names;
  for (const Algorithm &algorithm : algorithms()) {
    if (algorithm.op == op) names += (names.empty() ? "" : ", ") + std::string(algorithm.name);
  }
  return names;
}

Status parse_size(std::string_view word, std::string_view rule, uint64_t &out) {
  uint64_t value = 0;
  size_t i = 0;
  bool fits = true;
  for (; i < word.size() && std::isdigit(static_cast<unsigned char>(word[i])); ++i) {
    const uint64_t digit = static_cast<uint64_t>(word[i] - '0');
    fits = fits && value <= (kAnyBytes - digit) / 10;
    if (fits) value = value * 10 + digit;
  }
  int shift = 0;
  if (i > 0 && i + 1 == word.size()) {
    const char unit = static_cast<char>(std::toupper(static_cast<unsigned char>(word[i])));
    shift = unit == 'K' ? 10 : unit == 'M' ? 20 : unit == 'G' ? 30 : 0;
    if (shift > 0) ++i;
  }
  fits = fits && value <= kAnyBytes >> shift;
  if (i == 0 || i != word.size() || !fits) {
    return Status::make(DICOMM_INVALID_ARGUMENT, "'", word, "' in the algorithm rule '", rule,
                        "' is not a size; write a number of bytes such as 4096, 64K, 1M or 2G");
  }
  out = value << shift;
  return {};
}

Status parse_rule(std::string_view text, Rule &rule) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) {
    return Status::make(
        DICOMM_INVALID_ARGUMENT, "the algorithm rule '", text,
        "' has no ':'; write OP:ALGORITHM or OP@MIN-MAX:ALGORITHM, such as allreduce@64K-:ring");
  }
  std::string_view left = trim(text.substr(0, colon));
  const std::string_view name = trim(text.substr(colon + 1));
  const size_t at = left.find('@');
  if (at != std::string_view::npos) {
    const std::string_view range = trim(left.substr(at + 1));
    left = trim(left.substr(0, at));
    const size_t dash = range.find('-');
    if (dash == std::string_view::npos) {
      return Status::make(DICOMM_INVALID_ARGUMENT, "'", range, "' in the algorithm rule '", text,
                          "' is not a range; write MIN-MAX, MIN- or -MAX, such as 64K-1M");
    }
    const std::string_view low = trim(range.substr(0, dash));
    const std::string_view high = trim(range.substr(dash + 1));
    if (!low.empty()) DICOMM_TRY(parse_size(low, text, rule.min_bytes));
    if (!high.empty()) DICOMM_TRY(parse_size(high, text, rule.max_bytes));
    if (rule.min_bytes > rule.max_bytes) {
      return Status::make(DICOMM_INVALID_ARGUMENT, "the range '", range, "' in the algorithm rule '", text,
                          "' is empty; its first size must not be larger than its second");
    }
  }
  const int op = find_collective(left);
  if (op < 0) {
    return Status::make(DICOMM_INVALID_ARGUMENT, "'", left, "' in the algorithm rule '", text,
                        "' is not a collective; choose one of ", collective_names());
  }
  rule.op = static_cast<dicomm_opcode>(op);
  rule.algorithm = find_algorithm(rule.op, name);
  rule.origin = "user";
  if (rule.algorithm == nullptr) {
    return Status::make(DICOMM_INVALID_ARGUMENT, "'", name, "' in the algorithm rule '", text,
                        "' is not an algorithm for ", left, "; choose one of ", algorithm_names(rule.op));
  }
  return {};
}

bool covers(const Rule &rule, const Problem &problem, int hosts) {
  const uint64_t bytes = problem.bytes();
  return rule.op == problem.op && rule.min_bytes <= bytes && bytes <= rule.max_bytes &&
         rule.min_size <= problem.size && problem.size <= rule.max_size &&
         (!rule.widened_only || problem.widened) && (!rule.arena || problem.arena) &&
         (rule.min_hosts == 1 || (rule.min_hosts <= hosts && (hosts < problem.size || problem.wire))) &&
         rule.algorithm->fits(problem);
}

}  // namespace

Rules::Rules() {
  for (const BuiltIn &row : kBuiltIn) {
    Rule rule;
    rule.op = row.op;
    rule.min_bytes = row.min_bytes;
    rule.max_bytes = row.max_bytes;
    rule.max_size = row.max_size;
    rule.widened_only = row.widened_only;
    rule.arena = row.arena;
    rule.min_hosts = row.min_hosts;
    rule.algorithm = find_algorithm(row.op, row.algorithm);
    rule.origin = "built in";
    rules_.push_back(std::move(rule));
  }
}

Status Rules::parse(std::string_view text, Rules &out) {
  std::vector<Rule> rules;
  for (std::string_view rest = text; !trim(rest).empty();) {
    const size_t comma = rest.find(',');
    const std::string_view word = trim(rest.substr(0, comma));
    Rule rule;
    if (!word.empty()) {
      DICOMM_TRY(parse_rule(word, rule));
      rules.push_back(std::move(rule));
    }
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
  }
  Rules merged;
  merged.rules_.insert(merged.rules_.begin(), rules.begin(), rules.end());
  out = std::move(merged);
  return {};
}

const Rule &Rules::choose(const Problem &problem, const Topology &topology) const {
  const int hosts = topology.hosts();
  const auto rule = std::find_if(rules_.begin(), rules_.end(),
                                 [&](const Rule &candidate) { return covers(candidate, problem, hosts); });
  return rule == rules_.end() ? rules_.back() : *rule;
}

std::string Rules::table() const {
  std::ostringstream out;
  out << "The first row that matches wins. bytes: the largest buffer that is equal on all ranks.\n"
      << "hosts: rows with a number apply where some host has several ranks, those with 'arena' where up to "
      << kMostInArena << " ranks\non one host share memory for small messages.\n"
      << std::left << std::setw(16) << "op" << std::setw(16) << "bytes" << std::setw(10) << "ranks"
      << std::setw(8) << "hosts" << std::setw(10) << "dtypes" << std::setw(19) << "algorithm" << std::setw(10)
      << "origin"
      << "what it does\n";
  for (const Rule &rule : rules_) {
    out << std::setw(16) << opcode_name(rule.op) << std::setw(16)
        << byte_range(rule.min_bytes, rule.max_bytes) << std::setw(10)
        << size_range(rule.min_size, rule.max_size) << std::setw(8)
        << (rule.arena ? "arena" : size_range(rule.min_hosts, kAnySize)) << std::setw(10)
        << (rule.widened_only ? "8/16-bit" : "all") << std::setw(19) << rule.algorithm->name << std::setw(10)
        << rule.origin << rule.algorithm->summary << '\n';
  }
  return out.str();
}

}  // namespace dicomm
