// Compiled by test_hccl.py against the header that Huawei publishes, never run: our declarations of HCCL are
// the vendor's.
#include <third_party/hccl/inc/hccl/hccl.h>

#include <cstddef>

#include "ccl/hccl/abi.h"
#include "same_abi.h"

namespace ours = dicomm::hccl;

#define CHECK_FUNCTION(name, ...) \
  static_assert(same_abi::Same<decltype(ours::Functions::name), decltype(&Hccl##name)>::value, #name);
DICOMM_HCCL_FUNCTIONS(CHECK_FUNCTION)

#define CHECK_RESULT(name, theirs, ...) static_assert(int{ours::name} == int{HCCL_##theirs});
#define CHECK_DTYPE(name, theirs, ...) static_assert(int{ours::dtypes::name} == int{HCCL_DATA_TYPE_##theirs});
#define CHECK_OP(name, theirs, ...) static_assert(int{ours::ops::name} == int{HCCL_REDUCE_##theirs});
DICOMM_HCCL_RESULTS(CHECK_RESULT)
DICOMM_HCCL_DTYPES(CHECK_DTYPE)
DICOMM_HCCL_OPS(CHECK_OP)

static_assert(int{ours::kSend} == int{HCCL_SEND} && int{ours::kReceive} == int{HCCL_RECV});
static_assert(sizeof(ours::RootInfo) == sizeof(HcclRootInfo));
static_assert(sizeof(ours::SendRecvItem) == sizeof(HcclSendRecvItem));
static_assert(offsetof(ours::SendRecvItem, buf) == offsetof(HcclSendRecvItem, buf));
static_assert(offsetof(ours::SendRecvItem, count) == offsetof(HcclSendRecvItem, count));
static_assert(offsetof(ours::SendRecvItem, dtype) == offsetof(HcclSendRecvItem, dataType));
static_assert(offsetof(ours::SendRecvItem, peer) == offsetof(HcclSendRecvItem, remoteRank));
