// Communicator::info: what dicomm_comm_info prints.

#include "base/json.h"
#include "comm/communicator.h"

namespace dicomm {

std::string Communicator::info() {
  auto lock = engine_.lock();
  std::string hosts, host_of_rank, peers;
  for (int r = 0; r < size(); ++r) {
    hosts += (r == 0 ? "" : ", ") + json_string(setup_.peers[static_cast<size_t>(r)].host);
    host_of_rank += concat(r == 0 ? "" : ", ", setup_.topology.ranks[static_cast<size_t>(r)].host_index);
    const Link *link = channel_ == nullptr ? nullptr : channel_->links[static_cast<size_t>(r)];
    if (link == nullptr) continue;
    peers += concat(peers.empty() ? "" : ", ", "{\"rank\": ", r,
                    ", \"path\": ", json_string(messenger_.path(*channel_, r)),
                    ", \"messages_sent\": ", link->messages_sent, ", \"bytes_sent\": ", link->bytes_sent,
                    ", \"messages_received\": ", link->messages_received,
                    ", \"bytes_received\": ", link->bytes_received,
                    link->endpoint == nullptr ? std::string() : link->endpoint->peer_counters(), "}");
  }
  std::string library = "null";
  if (lane_ && lane_->has_library()) {
    const ChipLane::Calls calls = lane_->calls();
    library = concat("{\"library\": ", json_string(context_.ccl()->name()), ", \"calls\": ", calls.count,
                     ", \"bytes\": ", calls.bytes, "}");
  }
  std::string arena = "null";
  if (arena_) {
    const Arena::Counters &counted = arena_->counters();
    arena = concat("{\"operations\": ", counted.operations, ", \"bytes_written\": ", counted.bytes_written,
                   ", \"bytes_read\": ", counted.bytes_read, "}");
  }
  const int64_t timeout = setup_.timeout == kNever ? int64_t{DICOMM_TIMEOUT_NEVER} : setup_.timeout;
  return concat("{\"name\": ", json_string(setup_.name), ", \"id\": \"", std::hex, setup_.id, std::dec,
                "\", \"rank\": ", rank(), ", \"size\": ", size(), ", \"seq\": ", next_seq_,
                ", \"timeout_ns\": ", timeout, ", \"hosts\": [", hosts, "], \"host_of_rank\": [",
                host_of_rank, "], \"failed\": ", failed_.ok() ? "null" : json_string(failed_.message()),
                ", \"peers\": [", peers, "], \"ccl\": ", library, ", \"arena\": ", arena,
                ", \"topology\": ", to_json(setup_.topology), "}");
}

}  // namespace dicomm
