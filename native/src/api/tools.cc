#include "api/guard.h"
#include "base/json.h"
#include "base/names.h"
#include "coll/schedule.h"
#include "device/host/kernel_table.h"
#include "exec/scratch.h"
#include "path/explain.h"
#include "transport/registry.h"

using dicomm::guard;
using dicomm::Status;

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

size_t dicomm_explain(int32_t opcode, int64_t count, int32_t dtype, int32_t rank, int32_t size,
                      const char *algorithms, char *buf, size_t cap) {
  std::string text;
  guard([&]() -> Status {
    dicomm::Rules rules;
    const Status parsed = dicomm::Rules::parse(dicomm::text_or_empty(algorithms), rules);
    if (!parsed.ok()) {
      text = parsed.message();
      return parsed;
    }
    dicomm::Question question;
    question.op = opcode;
    question.count = static_cast<uint64_t>(std::max<int64_t>(count, 0));
    question.element = std::max<size_t>(dicomm_dtype_size(dtype), 1);
    question.widened = dicomm::accumulation_type(static_cast<dicomm_dtype>(dtype)) != dtype;
    question.size = std::max(size, 1);
    question.rank = std::clamp(rank, 0, question.size - 1);
    text = dicomm::explain(rules, question, dicomm::flat_topology(question.size));
    return {};
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
