#include "coll/through_host.h"

#include <map>
#include <optional>

#include "coll/build.h"

namespace dicomm::coll {

namespace {

// Long enough that starting a copy costs little, short enough that the first of them is soon on its way.
constexpr uint64_t kPartBytes = 1 << 20;

struct Range {
  uint64_t begin, end;
};

// Where in the input the same memory may lie as elements [begin, end) of the output.
std::optional<Range> coinciding(const Problem &problem, Range output) {
  const auto own = [&] { return Blocks(problem.counts).offset(problem.rank); };
  switch (problem.op) {
    case DICOMM_ALLREDUCE:
    case DICOMM_REDUCE:
      return output;
    case DICOMM_REDUCE_SCATTER:
    case DICOMM_SCATTER:
      return Range{output.begin + own(), output.end + own()};
    case DICOMM_ALLGATHER:
    case DICOMM_GATHER: {
      const uint64_t first = own(), last = first + problem.counts[static_cast<size_t>(problem.rank)];
      const Range both{std::max(output.begin, first), std::min(output.end, last)};
      if (both.begin >= both.end) return std::nullopt;
      return Range{both.begin - first, both.end - first};
    }
    default:
      return std::nullopt;
  }
}

class Rewriter {
 public:
  Rewriter(const Problem &problem, const Schedule &old)
      : problem_(problem),
        old_(old),
        part_(std::max<uint64_t>(kPartBytes / problem.element, 1)),
        gives_output_(problem.op == DICOMM_BROADCAST && problem.rank == problem.root) {}

  Schedule run() {
    made_.algorithm = old_.algorithm;
    made_.on_chip = true;
    std::copy(std::begin(old_.count_of), std::end(old_.count_of), std::begin(made_.count_of));
    for (const Step &step : old_.steps) rewrite(step);
    for (auto &[part, writes] : written_) write_back(writes);
    return std::move(made_);
  }

 private:
  struct Written {
    Range range;
    uint32_t step;
  };

  void rewrite(const Step &step) {
    Schedule::After after;
    for (uint32_t d = 0; d < step.dep_count; ++d) after.push_back(index_[old_.deps[step.first_dep + d]]);
    Step copy = step;
    const bool reads_a = step.kind != StepKind::recv;
    const bool writes = step.kind != StepKind::send;
    if (reads_a) copy.a = read(step.a, after);
    if (step.kind == StepKind::reduce) copy.b = read(step.b, after);
    if (writes) copy.dst = image(step.dst);
    const uint32_t index = made_.append(copy, after);
    index_.push_back(index);
    if (writes && step.dst.space == Space::output) {
      for (uint64_t at = step.dst.offset; at < step.dst.offset + step.dst.count;) {
        const uint64_t end = std::min(step.dst.offset + step.dst.count, (at / part_ + 1) * part_);
        written_[at / part_].push_back({{at, end}, index});
        at = end;
      }
    }
  }

  Span image(const Span &span) {
    if (span.space != Space::input && span.space != Space::output) return span;
    const Space space = span.space == Space::input ? Space::host_input : Space::host_output;
    made_.scratch(space) = std::max(made_.scratch(space), span.offset + span.count);
    return {space, span.offset, span.count};
  }

  // The span's image, which is filled after the steps added to `after`.
  Span read(const Span &span, Schedule::After &after) {
    const bool given = span.space == Space::input || (span.space == Space::output && gives_output_);
    if (given && span.count > 0) {
      for (uint64_t part = span.offset / part_; part * part_ < span.offset + span.count; ++part) {
        after.push_back(fetch(span.space, part));
      }
    }
    return image(span);
  }

  uint64_t given() const {
    switch (problem_.op) {
      case DICOMM_BROADCAST:
      case DICOMM_ALLREDUCE:
      case DICOMM_REDUCE:
        return problem_.count;
      case DICOMM_ALLGATHER:
      case DICOMM_GATHER:
        return problem_.counts[static_cast<size_t>(problem_.rank)];
      default:
        return Blocks(problem_.counts).total();
    }
  }

  uint32_t fetch(Space space, uint64_t part) {
    const auto found = fetched_.find(part);
    if (found != fetched_.end()) return found->second;
    const uint64_t begin = part * part_;
    const Span span{space, begin, std::min(part_, given() - begin)};
    const uint32_t step = made_.to_host(image(span), span);
    fetched_.emplace(part, step);
    return step;
  }

  // What was written of one part of the output, in as few copies as it has gaps.
  void write_back(std::vector<Written> &writes) {
    if (gives_output_) return;
    std::sort(writes.begin(), writes.end(),
              [](const Written &a, const Written &b) { return a.range.begin < b.range.begin; });
    for (size_t i = 0; i < writes.size();) {
      Range range = writes[i].range;
      Schedule::After after;
      for (; i < writes.size() && writes[i].range.begin <= range.end; ++i) {
        range.end = std::max(range.end, writes[i].range.end);
        after.push_back(writes[i].step);
      }
      if (const auto input = coinciding(problem_, range)) {
        for (uint64_t part = input->begin / part_; part * part_ < input->end; ++part) {
          const auto found = fetched_.find(part);
          if (found != fetched_.end()) after.push_back(found->second);
        }
      }
      const Span output{Space::output, range.begin, range.end - range.begin};
      made_.to_chip(output, image(output), after);
    }
  }

  const Problem &problem_;
  const Schedule &old_;
  const uint64_t part_;      // elements
  const bool gives_output_;  // the output is what this rank gives
  Schedule made_;
  std::vector<uint32_t> index_;                       // by old step
  std::map<uint64_t, uint32_t> fetched_;              // by part of what this rank gives
  std::map<uint64_t, std::vector<Written>> written_;  // by part of the output
};

}  // namespace

Schedule through_host(const Problem &problem, Schedule schedule) { return Rewriter(problem, schedule).run(); }

}  // namespace dicomm::coll
