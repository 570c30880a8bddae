// Communicator::join_island: the ranks of an island become a group of their vendor's library. They agree over
// the communicator itself.

#include <algorithm>

#include "base/names.h"
#include "comm/communicator.h"

namespace dicomm {

namespace {

constexpr size_t kMostId = 16 << 10;            // HCCL's has 4108 bytes, NCCL's 128
constexpr uint64_t kIdTag = uint64_t{1} << 63;  // before any operation of the user's could match it

}  // namespace

// Starts an operation and waits for its end.
Status Communicator::finish(const dicomm_op &op, uint64_t *bytes) {
  Request *request = nullptr;
  DICOMM_TRY(start(op, request));
  while (engine_.wait(&request, 1, kNever) != WaitEnd::done) {
  }
  const Status status = request->status();
  if (bytes != nullptr) *bytes = request->bytes;
  request->release();
  return status;
}

// The first member makes the id and gives it to the others; an empty one tells that it could not.
Status Communicator::share_id(const std::vector<int> &members, Ccl &ccl, Nanos timeout, CclId &id) {
  dicomm_op op{};
  op.size = sizeof op;
  op.dtype = DICOMM_UINT8;
  op.tag = kIdTag;
  op.timeout_ns = timeout == kNever ? int64_t{DICOMM_TIMEOUT_NEVER} : timeout;
  if (members.front() != rank()) {
    id.resize(kMostId);
    const dicomm_block block{id.data(), kMostId, nullptr};
    op.opcode = DICOMM_RECV;
    op.peer = members.front();
    op.recv = &block;
    op.nrecv = 1;
    uint64_t bytes = 0;
    DICOMM_TRY(finish(op, &bytes));
    id.resize(bytes);
    if (!id.empty()) return {};
    return Status::make(DICOMM_CCL_FAILED, describe_rank(members.front()), " could not begin a group of ",
                        ccl.describe(), "; its own error says why");
  }
  const Status made = context_.chip()->device().with_current([&] { return ccl.make_id(id); });
  if (!made.ok()) id.clear();
  const dicomm_block block{id.data(), static_cast<int64_t>(id.size()), nullptr};
  op.opcode = DICOMM_SEND;
  op.send = &block;
  op.nsend = 1;
  for (size_t i = 1; i < members.size(); ++i) {
    op.peer = members[i];
    const Status sent = finish(op);
    if (made.ok()) DICOMM_TRY(sent);
  }
  return made;
}

Status Communicator::join_island(Nanos deadline) {
  Chip *const chip = context_.chip();
  if (chip == nullptr) return {};
  std::vector<int> members;
  const auto &ranks = setup_.topology.ranks;
  const auto island = [&](int r) { return ranks[static_cast<size_t>(r)].island_index; };
  for (int r = 0; r < size(); ++r) {
    if (island(r) == island(rank())) members.push_back(r);
  }
  std::unique_ptr<CclGroup> group;
  Ccl *const ccl = context_.ccl();
  if (members.size() > 1 && ccl != nullptr) {
    const auto left = [&] { return deadline == kNever ? kNever : std::max<Nanos>(deadline - now(), 1); };
    const int place = static_cast<int>(std::ranges::find(members, rank()) - members.begin());
    CclId id;
    Status joined = share_id(members, *ccl, left(), id);
    if (joined.ok()) {
      joined = ccl->join(id, place, static_cast<int>(members.size()), chip->device(), left(), group);
    }
    if (!joined.ok()) {
      auto lock = engine_.lock();
      fail(joined);
      engine_.settle();
      return joined;
    }
  }
  auto lane = std::make_unique<ChipLane>(*chip, std::move(group), std::move(members));
  DICOMM_TRY(lane->open());
  auto lock = engine_.lock();
  lane_ = std::move(lane);
  if (failed_.ok()) return {};
  lane_->abort();
  return failed_;
}

}  // namespace dicomm
