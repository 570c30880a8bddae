// HCCL for tests: it moves bytes between threads of one process. Compiled several times:
//   DOUBLE_OLD      without what came later: asynchronous errors, texts, grouped sends and receives
//   DOUBLE_HEADER   the vendor's own header, to hold the declarations below against it
#include <cstdint>
#include <cstring>
#include <vector>

#include "doubles/control.h"
#include "doubles/loopback.h"

#define EXPORT __attribute__((visibility("default")))

#ifdef DOUBLE_HEADER
#include DOUBLE_HEADER
#else
extern "C" {
typedef enum { HCCL_SUCCESS = 0, HCCL_E_PARA = 1, HCCL_E_PTR = 2, HCCL_E_INTERNAL = 4 } HcclResult;
typedef void *HcclComm;
typedef enum { HCCL_REDUCE_SUM = 0, HCCL_REDUCE_RESERVED = 255 } HcclReduceOp;
typedef enum { HCCL_DATA_TYPE_INT8 = 0, HCCL_DATA_TYPE_RESERVED = 255 } HcclDataType;
typedef struct HcclRootInfoDef {
  char internal[4108];
} HcclRootInfo;
typedef enum { HCCL_SEND = 0, HCCL_RECV = 1 } HcclSendRecvType;
typedef struct HcclSendRecvItemDef {
  HcclSendRecvType sendRecvType;
  void *buf;
  uint64_t count;
  HcclDataType dataType;
  uint32_t remoteRank;
} HcclSendRecvItem;
typedef void *aclrtStream;
}
#endif

namespace {

using namespace dicomm::doubles;

dicomm::test::Format format_of(int type) {
  using namespace dicomm::test;
  static const Format formats[] = {kInt8,   kInt16, kInt32,  kFloat16, kFloat32, kInt64,
                                   kUint64, kUint8, kUint16, kUint32,  kFloat64, kBfloat16};
  return formats[type];
}

Arguments arguments_of(const void *send, void *recv, uint64_t count, int type, int op = 0,
                       uint32_t root = 0) {
  Arguments out;
  out.send = static_cast<const char *>(send);
  out.recv = static_cast<char *>(recv);
  out.count = count;
  out.format = format_of(type);
  out.op = op;
  out.root = static_cast<int>(root);
  return out;
}

HcclResult meet(HcclComm handle, const Arguments &arguments, void (*work)(Meeting &)) {
  auto *comm = static_cast<Rank *>(handle);
  if (arguments.send == nullptr || arguments.recv == nullptr) return HCCL_E_PTR;  // on every rank
  return comm->meet(comm->calls++, arguments, work) ? HCCL_SUCCESS : HCCL_E_INTERNAL;
}

HcclResult deliver(HcclComm comm, const std::vector<Transfer> &transfers) {
  return static_cast<Rank *>(comm)->deliver(transfers) ? HCCL_SUCCESS : HCCL_E_INTERNAL;
}

#define CALLED(...)                                                            \
  if (const int programmed = control().called(__VA_ARGS__); programmed != 0) { \
    return static_cast<HcclResult>(programmed);                                \
  }

}  // namespace

extern "C" {

EXPORT HcclResult HcclGetRootInfo(HcclRootInfo *info) {
  CALLED("GetRootInfo", "%s", "");
  static uint64_t next = 1;
  const std::lock_guard lock(control().mutex);
  std::memset(info, 0x5a, sizeof *info);
  std::memcpy(info->internal + sizeof *info - sizeof next, &next, sizeof next);
  ++next;
  return HCCL_SUCCESS;
}

EXPORT HcclResult HcclCommInitRootInfo(uint32_t size, const HcclRootInfo *info, uint32_t rank,
                                       HcclComm *out) {
  CALLED("CommInitRootInfo", "size=%u rank=%u", size, rank);
  if (info->internal[0] != 0x5a) return HCCL_E_PARA;
  uint64_t number;
  std::memcpy(&number, info->internal + sizeof *info - sizeof number, sizeof number);
  auto *comm = new Rank;
  comm->clique = clique_of(number);
  comm->rank = static_cast<int>(rank);
  comm->size = static_cast<int>(size);
  *out = comm;
  return comm->join() ? HCCL_SUCCESS : HCCL_E_INTERNAL;
}

EXPORT HcclResult HcclCommDestroy(HcclComm comm) {
  CALLED("CommDestroy", "rank=%d", static_cast<Rank *>(comm)->rank);
  delete static_cast<Rank *>(comm);
  return HCCL_SUCCESS;
}

EXPORT HcclResult HcclBroadcast(void *buf, uint64_t count, HcclDataType type, uint32_t root, HcclComm comm,
                                aclrtStream stream) {
  CALLED("Broadcast", "buf=%p count=%zu type=%d root=%u stream=%p", buf, size_t{count}, type, root, stream);
  return meet(comm, arguments_of(buf, buf, count, type, 0, root), do_broadcast);
}

EXPORT HcclResult HcclAllReduce(void *send, void *recv, uint64_t count, HcclDataType type, HcclReduceOp op,
                                HcclComm comm, aclrtStream stream) {
  CALLED("AllReduce", "send=%p recv=%p count=%zu type=%d op=%d stream=%p", send, recv, size_t{count}, type,
         op, stream);
  return meet(comm, arguments_of(send, recv, count, type, op), do_allreduce);
}

EXPORT HcclResult HcclReduce(void *send, void *recv, uint64_t count, HcclDataType type, HcclReduceOp op,
                             uint32_t root, HcclComm comm, aclrtStream stream) {
  CALLED("Reduce", "send=%p recv=%p count=%zu type=%d op=%d root=%u stream=%p", send, recv, size_t{count},
         type, op, root, stream);
  return meet(comm, arguments_of(send, recv, count, type, op, root), do_reduce);
}

EXPORT HcclResult HcclAllGather(void *send, void *recv, uint64_t count, HcclDataType type, HcclComm comm,
                                aclrtStream stream) {
  CALLED("AllGather", "send=%p recv=%p count=%zu type=%d stream=%p", send, recv, size_t{count}, type, stream);
  return meet(comm, arguments_of(send, recv, count, type), do_allgather);
}

EXPORT HcclResult HcclReduceScatter(void *send, void *recv, uint64_t count, HcclDataType type,
                                    HcclReduceOp op, HcclComm comm, aclrtStream stream) {
  CALLED("ReduceScatter", "send=%p recv=%p count=%zu type=%d op=%d stream=%p", send, recv, size_t{count},
         type, op, stream);
  return meet(comm, arguments_of(send, recv, count, type, op), do_reduce_scatter);
}

EXPORT HcclResult HcclSend(void *send, uint64_t count, HcclDataType type, uint32_t peer, HcclComm comm,
                           aclrtStream stream) {
  CALLED("Send", "send=%p count=%zu type=%d peer=%u stream=%p", send, size_t{count}, type, peer, stream);
  const Transfer one = {static_cast<char *>(send), nullptr, count * format_of(type).bytes,
                        static_cast<int>(peer)};
  return deliver(comm, {one});
}

EXPORT HcclResult HcclRecv(void *recv, uint64_t count, HcclDataType type, uint32_t peer, HcclComm comm,
                           aclrtStream stream) {
  CALLED("Recv", "recv=%p count=%zu type=%d peer=%u stream=%p", recv, size_t{count}, type, peer, stream);
  const Transfer one = {nullptr, static_cast<char *>(recv), count * format_of(type).bytes,
                        static_cast<int>(peer)};
  return deliver(comm, {one});
}

#ifndef DOUBLE_OLD

EXPORT HcclResult HcclGetCommAsyncError(HcclComm, HcclResult *error) {
  *error = static_cast<HcclResult>(control().async_error);
  return HCCL_SUCCESS;
}

EXPORT const char *HcclGetErrorString(HcclResult code) {
  return code == HCCL_E_INTERNAL ? "internal error of the double" : "";
}

EXPORT HcclResult HcclBatchSendRecv(HcclSendRecvItem *items, uint32_t count, HcclComm comm,
                                    aclrtStream stream) {
  std::vector<Transfer> transfers;
  std::string text;
  for (uint32_t i = 0; i < count; ++i) {
    const HcclSendRecvItem &one = items[i];
    const bool sends = one.sendRecvType == HCCL_SEND;
    auto *data = static_cast<char *>(one.buf);
    transfers.push_back({sends ? data : nullptr, sends ? nullptr : data,
                         one.count * format_of(one.dataType).bytes, static_cast<int>(one.remoteRank)});
    text += std::string(sends ? "send" : "recv") + " count=" + std::to_string(one.count) +
            " type=" + std::to_string(one.dataType) + " peer=" + std::to_string(one.remoteRank) + ", ";
  }
  CALLED("BatchSendRecv", "%sstream=%p", text.c_str(), stream);
  return deliver(comm, transfers);
}

#endif

}  // extern "C"
