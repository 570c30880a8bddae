#include "ccl/group_base.h"

#include <algorithm>
#include <utility>

namespace dicomm {

Status on_one_stream(const std::vector<Stream *> &streams,
                     const std::function<Status(Stream &stream)> &body) {
  Stream &stream = *streams.front();
  std::vector<Stream *> others;
  for (Stream *one : streams)
    if (one != &stream && std::find(others.begin(), others.end(), one) == others.end()) others.push_back(one);
  std::unique_ptr<Event> event;
  for (Stream *other : others) {
    DICOMM_TRY(other->record(event));
    DICOMM_TRY(stream.wait(*event));
  }
  DICOMM_TRY(body(stream));
  for (Stream *other : others) {
    DICOMM_TRY(stream.record(event));
    DICOMM_TRY(other->wait(*event));
  }
  return {};
}

std::optional<dicomm_reduce> reducing_bytes(dicomm_reduce logical) {
  switch (logical) {
    case DICOMM_SUM:
    case DICOMM_MAX:
    case DICOMM_BOR:
      return DICOMM_MAX;
    case DICOMM_PROD:
    case DICOMM_MIN:
    case DICOMM_BAND:
      return DICOMM_MIN;
    default:
      return std::nullopt;
  }
}

Status CclGroupBase::check_collective(int root) const {
  if (collected_)
    return Status::make(DICOMM_INVALID_ARGUMENT, "only sends and receives stand between begin and end");
  if (root < 0 || root >= size_)
    return Status::make(DICOMM_INVALID_ARGUMENT, "root ", root, " is not a rank of the group of ", size_);
  return {};
}

Status CclGroupBase::inside(const std::function<Status()> &body) {
  const Gate::Pass pass(gate_);
  DICOMM_TRY(pass.status());
  const Status status = device_.with_current(body);
  return !status.ok() && gate_.ended() ? Gate::refusal() : status;
}

Status CclGroupBase::add(const CclTransfer &one) {
  if (!transfers()) return Status::make(DICOMM_NOT_SUPPORTED, "this library has no send and receive");
  if (one.peer < 0 || one.peer >= size_ || one.peer == rank_)
    return Status::make(DICOMM_INVALID_ARGUMENT, "peer ", one.peer, " is not another rank of the group of ",
                        size_);
  if (gate_.ended()) return Gate::refusal();
  if (one.count == 0) return {};  // on both sides
  if (!collected_) return transfer(one);
  collected_->push_back(one);
  return {};
}

Status CclGroupBase::send(const void *data, uint64_t count, dicomm_dtype dtype, int peer, Stream &stream) {
  return add({data, nullptr, count, dtype, peer, &stream});
}

Status CclGroupBase::recv(void *data, uint64_t count, dicomm_dtype dtype, int peer, Stream &stream) {
  return add({nullptr, data, count, dtype, peer, &stream});
}

Status CclGroupBase::begin() {
  if (!transfers()) return Status::make(DICOMM_NOT_SUPPORTED, "this library has no send and receive");
  if (collected_) return Status::make(DICOMM_INVALID_ARGUMENT, "begin twice without end");
  if (gate_.ended()) return Gate::refusal();
  collected_.emplace();
  return {};
}

Status CclGroupBase::end() {
  if (!collected_) return Status::make(DICOMM_INVALID_ARGUMENT, "end without begin");
  const std::vector<CclTransfer> all = *std::exchange(collected_, std::nullopt);
  return all.empty() ? Status() : transfer_together(all);
}

}  // namespace dicomm
