#include "ccl/hccl/library.h"

#include "ccl/group_base.h"

namespace dicomm::hccl {

namespace {

constexpr const char *kHow =
    "It comes with Huawei's CANN toolkit (/usr/local/Ascend/ascend-toolkit); source its set_env.sh";

struct Meaning {
  dicomm_status status;
  const char *name;
};

Meaning meaning_of(int code) {
  switch (code) {
#define DICOMM_HCCL_CASE(name, foreign, value, status) \
  case value:                                          \
    return {status, "HCCL_" #foreign};
    DICOMM_HCCL_RESULTS(DICOMM_HCCL_CASE)
#undef DICOMM_HCCL_CASE
    default:
      return {DICOMM_CCL_FAILED, "a code this version of dicomm does not know"};
  }
}

std::optional<int> same(dicomm_dtype dtype) {
  switch (dtype) {
#define DICOMM_HCCL_CASE(name, foreign, value, ours) \
  case ours:                                         \
    return value;
    DICOMM_HCCL_DTYPES(DICOMM_HCCL_CASE)
#undef DICOMM_HCCL_CASE
    default:
      return std::nullopt;  // bool, 8-bit floats, complex
  }
}

std::optional<int> same(dicomm_reduce op) {
  switch (op) {
    case DICOMM_SUM:
      return ops::sum;
    case DICOMM_PROD:
      return ops::prod;
    case DICOMM_MIN:
      return ops::min;
    case DICOMM_MAX:
      return ops::max;
    default:
      return std::nullopt;  // avg, bitwise, premul_sum
  }
}

}  // namespace

std::vector<std::string> files() { return {"libhccl.so"}; }

Status Library::open(const std::vector<std::string> &files, std::shared_ptr<const Library> &out) {
  auto library = std::make_shared<Library>();
  DICOMM_TRY(library->file.open("HCCL", files, kHow));
  std::string missing;
#define DICOMM_HCCL_FIND(name, always, ...) \
  library->file.find("Hccl" #name, library->call.name, (always) ? &missing : nullptr);
  DICOMM_HCCL_FUNCTIONS(DICOMM_HCCL_FIND)
#undef DICOMM_HCCL_FIND
  if (!missing.empty())
    return Status::make(DICOMM_NOT_SUPPORTED, library->describe(), " lacks ", missing,
                        ": it is too old, or another library of that name. ", kHow);
  out = std::move(library);
  return {};
}

Status Library::failure(int code, const char *function) const {
  if (code == success) return {};
  const Meaning meaning = meaning_of(code);
  Failure failure;
  failure.code = meaning.status;
  failure.foreign_domain = "hccl";
  failure.foreign_code = code;
  failure.text = concat(describe(), ": Hccl", function, ": ", meaning.name);
  const char *text = call.GetErrorString != nullptr ? call.GetErrorString(code) : nullptr;
  if (text != nullptr && text[0] != 0) failure.text += concat(", ", text);
  failure.text += "; its logs are in ~/ascend/log";
  return Status(std::move(failure));
}

Wire moving(dicomm_dtype dtype) {
  if (const auto known = same(dtype)) return {*known, 1};
  return {dtypes::uint8, dicomm_dtype_size(dtype)};
}

std::optional<Reduction> reducing(dicomm_dtype dtype, dicomm_reduce op) {
  if (dtype == DICOMM_BOOL) {
    const auto bytes = reducing_bytes(op);
    return bytes ? std::optional(Reduction{{dtypes::int8, 1}, *same(*bytes)}) : std::nullopt;
  }
  if (dtype == DICOMM_COMPLEX64 && op == DICOMM_SUM) return Reduction{{dtypes::float32, 2}, ops::sum};
  const auto known_op = same(op);
  if (!known_op) return std::nullopt;
  switch (dtype) {
    case DICOMM_INT8:
    case DICOMM_INT32:
    case DICOMM_INT64:
    case DICOMM_FLOAT16:
    case DICOMM_FLOAT32:
      break;
    case DICOMM_INT16:
    case DICOMM_BFLOAT16:
      if (op == DICOMM_PROD) return std::nullopt;
      break;
    default:
      return std::nullopt;  // it moves the others
  }
  return Reduction{{*same(dtype), 1}, *known_op};
}

}  // namespace dicomm::hccl
