#include <algorithm>
#include <vector>

#include "api/guard.h"
#include "base/json.h"
#include "base/names.h"
#include "base/operations.h"
#include "coll/schedule.h"
#include "device/host/kernel_table.h"
#include "exec/scratch.h"
#include "model/machine.h"
#include "path/explain.h"
#include "transport/registry.h"

using dicomm::guard;
using dicomm::Status;

namespace {

// Fields that are 0 keep the default.
dicomm::model::Machine read_machine(const dicomm_machine *given) {
  const dicomm_machine numbers = dicomm::read_options(given);
  dicomm::model::Machine machine;
  const auto set = [](double &value, double number, double unit) {
    if (number != 0) value = number * unit;
  };
  set(machine.local_latency, numbers.local_latency_us, 1e-6);
  set(machine.remote_latency, numbers.latency_us, 1e-6);
  set(machine.overhead, numbers.overhead_us, 1e-6);
  set(machine.local_bandwidth, numbers.local_bandwidth_gbs, 1e9);
  set(machine.remote_bandwidth, numbers.bandwidth_gbs, 1e9);
  set(machine.nic_bandwidth, numbers.nic_gbps, 1e9 / 8);
  set(machine.copy_bandwidth, numbers.copy_gbs, 1e9);
  set(machine.reduce_bandwidth, numbers.reduce_gbs, 1e9);
  if (numbers.eager_bytes != 0) machine.eager_bytes = numbers.eager_bytes;
  return machine;
}

dicomm::Topology read_hosts(const int32_t *hosts, int ranks) {
  if (hosts == nullptr) return dicomm::flat_topology(ranks);
  return dicomm::topology_of_hosts(std::vector<int>(hosts, hosts + ranks));
}

// Islands of chips whose libraries know everything; negative numbers: the host's processors.
Status give_chips(dicomm::Topology &topology, const int32_t *islands) {
  for (dicomm::RankInfo &rank : topology.ranks) {
    const int32_t island = islands[&rank - topology.ranks.data()];
    if (island < 0) continue;
    rank.chip.vendor = dicomm::concat("chip ", island);
    rank.chip.library = rank.chip.vendor;
    rank.chip.reduces.fill(~uint64_t{0});
    rank.chip.send_recv = rank.chip.converts = true;
  }
  return dicomm::form_islands(topology);
}

void give_roles(dicomm::Topology &topology, const int32_t *reducers) {
  for (dicomm::RankInfo &rank : topology.ranks) {
    if (reducers[&rank - topology.ranks.data()] != 0) rank.chip.role = "reducer";
  }
}

// What is said of a reduction.
Status read_reduction(const dicomm_question &given, dicomm::Question &question) {
  const auto dtype = static_cast<dicomm_dtype>(given.dtype);
  const auto reduce = static_cast<dicomm_reduce>(given.reduce);
  if (dicomm::is_reduction(given.opcode) && !dicomm::reduction_supported(dtype, reduce)) {
    return Status::make(DICOMM_NOT_SUPPORTED, dicomm::reduce_name(given.reduce), " is not defined for ",
                        dicomm::dtype_name(given.dtype));
  }
  question.accumulation = dicomm::accumulation_type(dtype);
  question.widened = question.accumulation != dtype;
  question.scaled = dicomm::scales_inputs(reduce, dtype);
  question.reduce = reduce;
  if (dicomm::is_sum(reduce) && dtype == DICOMM_FLOAT32)
    return dicomm::read_wire(given.wire_dtype, question.wire);
  return {};
}

Status answer_question(const dicomm_question &given, std::string &text) {
  dicomm::Rules rules;
  DICOMM_TRY(dicomm::Rules::parse(dicomm::text_or_empty(given.algorithms), rules));
  dicomm::Question question;
  question.op = given.opcode;
  question.count = static_cast<uint64_t>(std::max<int64_t>(given.count, 0));
  question.element = std::max<size_t>(dicomm_dtype_size(given.dtype), 1);
  DICOMM_TRY(read_reduction(given, question));
  question.size = std::max(given.ranks, 1);
  question.rank = std::clamp(given.rank, 0, question.size - 1);
  question.simulate = given.machine != nullptr;
  question.machine = read_machine(given.machine);
  DICOMM_TRY(question.machine.check());
  dicomm::Topology topology = read_hosts(given.hosts, question.size);
  if (given.reducers != nullptr) {
    give_roles(topology, given.reducers);
    if (std::ranges::all_of(topology.ranks, &dicomm::RankInfo::helps))
      return Status::make(DICOMM_INVALID_ARGUMENT, "every rank is a reducer, so there is nothing to reduce");
  }
  if (given.islands != nullptr) {
    if (question.simulate) {
      return Status::make(DICOMM_INVALID_ARGUMENT,
                          "a time cannot be predicted for islands: the model knows no chips, neither their "
                          "libraries nor copies to and from them");
    }
    DICOMM_TRY(give_chips(topology, given.islands));
  }
  text = dicomm::explain(rules, question, topology);
  return {};
}

}  // namespace

extern "C" {

size_t dicomm_build_info(char *buf, size_t cap) {
  std::string transports, algorithms;
  for (const std::string &name : dicomm::transport_names()) {
    transports += (transports.empty() ? "" : ", ") + dicomm::json_string(name);
  }
  for (const dicomm::Algorithm &algorithm : dicomm::algorithms()) {
    algorithms += dicomm::concat(algorithms.empty() ? "" : ", ", "\"", dicomm::opcode_name(algorithm.op), ":",
                                 algorithm.name, "\"");
  }
  return dicomm::answer(
      dicomm::concat("{\"version\": ", dicomm::json_string(DICOMM_VERSION), ", \"abi\": ",
                     DICOMM_ABI_VERSION + 0, ", \"compiler\": ", dicomm::json_string(__VERSION__),
                     ", \"kernels\": ", dicomm::json_string(dicomm::chosen_kernels().name),
                     ", \"transports\": [", transports, "], \"algorithms\": [", algorithms, "]}"),
      buf, cap);
}

size_t dicomm_explain(const dicomm_question *given, char *buf, size_t cap) {
  std::string text;
  guard([&]() -> Status {
    const Status status = answer_question(dicomm::read_options(given), text);
    if (!status.ok()) text = status.message();
    return status;
  });
  return dicomm::answer(text, buf, cap);
}

dicomm_status dicomm_reduce_local(const void *const *inputs, size_t n, void *out, int64_t count,
                                  int32_t dtype, int32_t reduce, double factor) {
  return guard([&]() -> Status {
    const auto type = static_cast<dicomm_dtype>(dtype);
    const auto op = static_cast<dicomm_reduce>(reduce);
    if (dicomm_dtype_size(dtype) == 0 || n == 0 || count < 0) {
      return Status::make(DICOMM_INVALID_ARGUMENT, "reduce_local: dtype ", dtype, ", ", n, " inputs, count ",
                          count);
    }
    if (!dicomm::reduction_supported(type, op)) {
      return Status::make(DICOMM_NOT_SUPPORTED, "reduce_local: ", dicomm::reduce_name(reduce),
                          " is not defined for ", dicomm::dtype_name(dtype));
    }
    dicomm::Arithmetic arithmetic;
    arithmetic.dtype = type;
    arithmetic.op = op;
    arithmetic.size = static_cast<int>(n);
    if (op == DICOMM_PREMUL_SUM) dicomm::set_factor(arithmetic, factor);
    const auto elements = static_cast<uint64_t>(count);
    const auto acc = std::make_shared<dicomm::ScratchPool>()->take(
        elements * dicomm_dtype_size(dicomm::accumulation_type(type)));
    using dicomm::Form;
    dicomm::copy_elements(arithmetic, acc.get(), Form::wide, inputs[0], Form::raw, elements, false);
    for (size_t i = 1; i < n; ++i) {
      dicomm::reduce_elements(arithmetic, acc.get(), Form::wide, acc.get(), Form::wide, inputs[i], Form::raw,
                              elements, false);
    }
    dicomm::copy_elements(arithmetic, out, Form::plain, acc.get(), Form::wide, elements, true);
    return {};
  });
}
}
