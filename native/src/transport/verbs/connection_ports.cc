// Which ports and queue pairs a connection uses, and what becomes of that when ports go and return.
#include <algorithm>

#include "transport/verbs/connection.h"

namespace dicomm {

namespace {

constexpr Nanos kReturnPause = kSecond;  // the other end of the cable returns at about the same time
constexpr Nanos kLongestWidenPause = 960 * kSecond;

}  // namespace

std::vector<Rail> VerbsConnection::rails_now() const {
  std::vector<Rail> out;
  for (uint32_t i = 0; i < verbs_.ports.size(); ++i) {
    const VerbsPort &port = *verbs_.ports[i];
    out.push_back({port.up(), (suspects_ >> i & 1) != 0, port.address().gid});
  }
  return out;
}

void VerbsConnection::proven(uint32_t pair) {
  proven_ |= uint64_t{1} << pair;
  suspects_ &= ~(1u << rails_[pair]);
  stream_.push(RecordKind::proven, epoch_, &proven_, sizeof(proven_));
  want_output();
  change_over_if_proven();
}

// It is left out, if the others do without.
void VerbsConnection::not_proven(uint32_t pair, const std::string &why) {
  broken_ |= uint64_t{1} << pair;
  if ((broken_ & (peer_proven_ | 1)) != 0 || (broken_ | 1) == all_pairs())
    return drop_link(why, "connection not made", pair);
  const auto said = [&](size_t other) {
    return other != pair && rails_[other] == rails_[pair] && (broken_ >> other & 1) != 0;
  };
  for (size_t other = 1; other < rails_.size(); ++other)
    if (said(other)) return;
  log("connection not made", concat("messages go over other queue pairs: ", why));
}

void VerbsConnection::on_proven(uint64_t pairs) {
  if (!usable()) return;
  peer_proven_ = pairs;
  if ((peer_proven_ & broken_) != 0)
    return drop_link("what the other side sends arrives, but not what we send");
  change_over_if_proven();
}

// All ports that are up are used, as far as we know.
bool VerbsConnection::complete_link() const {
  if ((proven_ & peer_proven_) != all_pairs()) return false;
  for (uint32_t i = 0; i < verbs_.ports.size(); ++i) {
    if (verbs_.ports[i]->up() && !has_pair_over(i)) return false;
  }
  return true;
}

// Looks then whether the link could be wider. Who answers may have more ports than the other side ever asks
// for, and counts only those that have returned.
void VerbsConnection::widen_later() {
  shared_.reactor.cancel(retry_);
  const Nanos pause = returned_ ? kReturnPause : widen_pause_;
  retry_ = shared_.reactor.at(now() + pause, [this] {
    if (stage_ != Stage::used || !usable() || goodbye_ != Goodbye::none || peer_goodbye_) return;
    const bool complete = !returned_ && (!leads() || complete_link());
    widen_pause_ = complete || returned_ ? kWidenPause : std::min(2 * widen_pause_, kLongestWidenPause);
    if (!complete) drop_link("all ports that are up are tried again", "queue pairs remade", kToWiden);
  });
}

void VerbsConnection::suspect(uint32_t cause) {
  if (cause < rails_.size()) suspects_ |= 1u << rails_[cause];
}

void VerbsConnection::port_lost(uint32_t port, const std::string &why) {
  for (uint32_t pair = 0; pair < rails_.size(); ++pair) {
    if (rails_[pair] == port && (broken_ >> pair & 1) == 0) return drop_link(why, "connection lost", pair);
  }
}

void VerbsConnection::port_returned(uint32_t port) {
  if (stage_ == Stage::used && has_pair_over(port)) return;
  returned_ = true;
  if (stage_ == Stage::used) {
    widen_later();
  } else if (leads() && !link_ && carrier_ != Carrier::link && !giving_up()) {
    pause_ = 0;
    retry_later();
  }
}

std::string VerbsConnection::peer_counters() const {
  std::string ports;
  for (uint32_t i = 0; i < verbs_.ports.size(); ++i) {
    bool used = false;
    for (size_t pair = 0; pair < rails_.size(); ++pair)
      used |= rails_[pair] == i && (proven_ & peer_proven_) >> pair & 1;
    if (used && carrier_ == Carrier::link)
      ports += concat(ports.empty() ? "\"" : ", \"", verbs_.ports[i]->describe(), "\"");
  }
  return concat(counters_.members(), ", \"ports\": [", ports, "]");
}

}  // namespace dicomm
