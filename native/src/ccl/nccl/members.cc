#include "ccl/nccl/members.h"

#include "ccl/group_base.h"

namespace dicomm::nccl {

const std::vector<Member> &members() {
  // float8_arithmetic is false where some chips of the vendor have other 8-bit formats (AMD's fnuz), or where
  // it is not published: the bytes still move.
  static const std::vector<Member> rows = {
      {"nccl",
       "NCCL",
       "nvidia",
       "nccl",
       {"libnccl.so.2", "libnccl.so"},
       "Get it with pip install nvidia-nccl-cu12 (cu13 for CUDA 13) and put its lib folder in "
       "LD_LIBRARY_PATH, or "
       "with apt install libnccl2 from NVIDIA's repository; it is also there once a CUDA build of torch is "
       "imported",
       true},
      {"rccl",
       "RCCL",
       "amd",
       "nccl",
       {"librccl.so.1", "librccl.so"},
       "Get it with apt install rccl from AMD's ROCm repository (/opt/rocm/lib)",
       false},
      {"rccl",
       "RCCL of DTK",
       "hygon",
       "nccl",
       {"librccl.so.1", "librccl.so"},
       "It comes with Hygon's DTK (/opt/dtk/lib); source the DTK's env.sh",
       false},
      {"mccl",
       "MCCL of MUSA",
       "mthreads",
       "mccl",
       {"libmccl.so.2", "libmccl.so"},
       "It comes with Moore Threads' MUSA SDK (/usr/local/musa/lib); put that folder in LD_LIBRARY_PATH",
       false},
      {"mccl",
       "MCCL of MACA",
       "metax",
       "mccl",
       {"libmccl.so"},
       "It comes with MetaX's MACA SDK (/opt/maca/lib); put that folder in LD_LIBRARY_PATH",
       false},
      {"ixccl",
       "ixCCL",
       "iluvatar",
       "nccl",
       {"libnccl.so.2", "libnccl.so"},
       "It comes with Iluvatar's CoreX SDK (/usr/local/corex/lib64); put that folder in LD_LIBRARY_PATH",
       false},
  };
  return rows;
}

namespace {

// The vendor's dtype of the same meaning.
std::optional<int> same(int version, dicomm_dtype dtype) {
  switch (dtype) {
    case DICOMM_INT8:
      return dtypes::int8;
    case DICOMM_UINT8:
      return dtypes::uint8;
    case DICOMM_INT32:
      return dtypes::int32;
    case DICOMM_UINT32:
      return dtypes::uint32;
    case DICOMM_INT64:
      return dtypes::int64;
    case DICOMM_UINT64:
      return dtypes::uint64;
    case DICOMM_FLOAT16:
      return dtypes::float16;
    case DICOMM_FLOAT32:
      return dtypes::float32;
    case DICOMM_FLOAT64:
      return dtypes::float64;
    case DICOMM_BFLOAT16:
      if (version >= kBfloat16From) return dtypes::bfloat16;
      return std::nullopt;
    case DICOMM_FLOAT8_E4M3FN:
      if (version >= kFloat8From) return dtypes::float8_e4m3;
      return std::nullopt;
    case DICOMM_FLOAT8_E5M2:
      if (version >= kFloat8From) return dtypes::float8_e5m2;
      return std::nullopt;
    default:
      return std::nullopt;  // 16-bit integers, bool, complex
  }
}

bool is_float8(dicomm_dtype dtype) { return dtype == DICOMM_FLOAT8_E4M3FN || dtype == DICOMM_FLOAT8_E5M2; }

std::optional<int> same(int version, dicomm_reduce op) {
  switch (op) {
    case DICOMM_SUM:
      return ops::sum;
    case DICOMM_PROD:
      return ops::prod;
    case DICOMM_MIN:
      return ops::min;
    case DICOMM_MAX:
      return ops::max;
    case DICOMM_AVG:
      if (version >= kAvgFrom) return ops::avg;
      return std::nullopt;
    case DICOMM_PREMUL_SUM:
      if (version >= kPremulSumFrom) return ops::sum;
      return std::nullopt;
    default:
      return std::nullopt;  // bitwise
  }
}

}  // namespace

Wire moving(int version, dicomm_dtype dtype) {
  if (const auto known = same(version, dtype)) return {*known, 1};
  return {dtypes::uint8, dicomm_dtype_size(dtype)};
}

std::optional<Reduction> reducing(const Member &member, int version, dicomm_dtype dtype, dicomm_reduce op) {
  if (dtype == DICOMM_BOOL) {
    const auto bytes = reducing_bytes(op);
    return bytes ? std::optional(Reduction{{dtypes::uint8, 1}, *same(version, *bytes)}) : std::nullopt;
  }
  const auto known_op = same(version, op);
  if (!known_op) return std::nullopt;
  if (dtype == DICOMM_COMPLEX64 || dtype == DICOMM_COMPLEX128) {  // added as pairs of real numbers
    if (op != DICOMM_SUM && op != DICOMM_AVG) return std::nullopt;
    return Reduction{{dtype == DICOMM_COMPLEX64 ? dtypes::float32 : dtypes::float64, 2}, *known_op};
  }
  if (is_float8(dtype) && !member.float8_arithmetic) return std::nullopt;
  const auto known = same(version, dtype);
  if (!known) return std::nullopt;
  return Reduction{{*known, 1}, *known_op};
}

}  // namespace dicomm::nccl
