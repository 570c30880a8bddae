#include <errno.h>

#include <algorithm>
#include <cstring>

#include "transport/verbs/connection.h"

namespace dicomm {

namespace {

constexpr Nanos kShortPause = kSecond, kLongPause = 60 * kSecond;
constexpr Nanos kSteady = 30 * kSecond;  // queue pairs that worked for so long start with no pause again

template <size_t Size>
void copy_text(char (&into)[Size], const std::string &text) {
  into[text.copy(into, Size - 1)] = 0;
}

bool is_of_memory(int status) {
  switch (status) {
    case ibv::wc_loc_qp_op_err:
    case ibv::wc_loc_prot_err:
    case ibv::wc_loc_access_err:
    case ibv::wc_rem_access_err:
    case ibv::wc_rem_op_err:
      return true;
    default:
      return false;
  }
}

}  // namespace

bool VerbsConnection::leads() const { return shared_.options.self.id < owner_.endpoint().peer(); }

// By host and process where no communicator has told the ranks yet.
void VerbsConnection::log(const char *event, const std::string &text) const {
  if (!verbs_.log) return;
  const auto name = [&](const ContextId &id, const std::string &otherwise) {
    const std::string rank = verbs_.name_of ? verbs_.name_of(id) : std::string();
    return rank.empty() ? otherwise : rank;
  };
  const PeerAddress &self = shared_.options.self;
  verbs_.log(concat("RDMA ", event, " (", name(self.id, self.host), " -> ",
                    name(owner_.endpoint().peer(), owner_.peer_name()), "), ", text));
}

// ---- an attempt ----

Status VerbsConnection::make_link(std::vector<uint32_t> rails) {
  link_.reset();
  early_.clear();
  lost_.reset();
  our_down_.reset();
  their_down_.reset();
  proven_ = peer_proven_ = broken_ = 0;
  returned_ = false;
  stage_ = Stage::none;
  rails_ = std::move(rails);
  if (rails_.empty()) return Status::make(DICOMM_NOT_SUPPORTED, "none of its RDMA ports is up");
  DICOMM_TRY(memory_.register_with(*verbs_.ports[rails_[0]], rails_[0]));
  DICOMM_TRY(VerbsLink::make(verbs_.ports, rails_, memory_, verbs_.settings, link_));
  stage_ = Stage::made;
  shared_.reactor.cancel(attempt_deadline_);
  attempt_deadline_ = shared_.reactor.at(deadline_after(shared_.options.connect_timeout), [this] {
    drop_link("the queue pairs were not connected in time");
    poll();
  });
  return {};
}

void VerbsConnection::begin_attempt() {
  ++epoch_;
  tell_setup(make_link(choose_rails(rails_now(), verbs_.settings.queue_pairs)));
}

void VerbsConnection::tell_setup(const Status &made) {
  Setup setup;
  if (made.ok())
    setup = link_->setup(depth_);
  else
    copy_text(setup.text, made.sentence());
  stream_.push(RecordKind::setup, epoch_, &setup, sizeof(setup));
  want_output();
  if (made.ok()) return;
  link_.reset();
  attempt_failed(made.sentence());
}

void VerbsConnection::on_setup(uint32_t epoch, const Setup &peer) {
  const bool answer = leads();
  if (answer && (epoch != epoch_ || !link_)) return;
  if (!answer) {
    if (link_) link_->close(completions_);
    completions_.clear();
    link_.reset();
    epoch_ = epoch;
  }
  if (peer.queue_pairs == 0) {
    link_.reset();
    return attempt_failed(
        concat("the other side has none: ", std::string(peer.text, strnlen(peer.text, 255))));
  }
  Status status;
  if (!peer.valid() || (answer && peer.queue_pairs != rails_.size()))
    status = Status::make(DICOMM_PROTOCOL, "it sent a set-up that dicomm never sends");
  else if (!answer)
    status = make_link(opposite_rails(rails_now(), peer));
  if (status.ok()) status = link_->connect(peer);
  if (!status.ok() && answer) return drop_link(status.sentence());
  if (status.ok()) {
    stage_ = Stage::connected;
    window_ = std::min(depth_, std::max(peer.depth, kLeastDepth));
  }
  if (!answer) return tell_setup(status);
  stream_.push(RecordKind::ready, epoch_);
  prove();
  want_output();
}

// Sends something over every queue pair, to see that it arrives.
void VerbsConnection::prove() {
  if (stage_ != Stage::connected || !usable()) return;
  if (const int error = link_->probe(); error != 0) post_failed(error, kNoPair);
}

// What is with the socket already goes before.
void VerbsConnection::change_over_if_proven() {
  const auto suffices = [](uint64_t pairs) { return (pairs & 1) != 0 && pairs > 1; };
  if (stage_ != Stage::connected || !usable() || !suffices(proven_) || !suffices(peer_proven_)) return;
  stream_.push(RecordKind::change, epoch_);
  want_output();
  shared_.reactor.cancel(attempt_deadline_);
  carrier_ = Carrier::link;
  over_socket_ = handed_;
  stage_ = Stage::used;
  used_since_ = now();
  ++counters_.links;
  widen_later();
}

bool VerbsConnection::receive_from_link() {
  receives_from_link_ = true;
  for (const auto &[place, bytes] : std::exchange(early_, {})) {
    if (!take_frame(memory_.place(place), bytes)) return false;
    if (usable()) link_->receive_frame(place);
  }
  return true;
}

// There is no link, and neither side had begun to use it.
void VerbsConnection::attempt_failed(const std::string &why) {
  stage_ = Stage::none;
  shared_.reactor.cancel(attempt_deadline_);
  const bool hopeless = counters_.links == 0 || std::all_of(verbs_.ports.begin(), verbs_.ports.end(),
                                                            [](const auto &port) { return port->failed(); });
  if (!verbs_.settings.tcp && hopeless)
    return fail(Status::make(DICOMM_CONNECT_FAILED, "no queue pairs, and no other path is allowed: ", why));
  if (verbs_.settings.tcp && carrier_ == Carrier::none) {
    carrier_ = Carrier::socket;
    log("connection not made", concat("messages go over tcp: ", why));
  }
  retry_later();
}

void VerbsConnection::retry_later() {
  if (!leads()) return;
  shared_.reactor.cancel(retry_);
  retry_ = shared_.reactor.at(now() + pause_, [this] {
    ++counters_.retries;
    begin_attempt();
  });
  pause_ = std::clamp(2 * pause_, kShortPause, kLongPause);
}

// ---- the end of a link ----

// The cards let go of all memory at once; the rest is for the next poll.
void VerbsConnection::drop_link(const std::string &why, const char *event, uint32_t cause, bool memory) {
  if (!usable()) return;
  lost_ = {event, why, cause, memory};
  suspect(cause);
  link_->close(completions_);
  shared_.reactor.kick();
}

void VerbsConnection::post_failed(int error, uint32_t pair) {
  const VerbsPort &port = *verbs_.ports[rails_[pair < rails_.size() ? pair : 0]];
  drop_link(Status::from_errno(error, concat("ibv_post_send on ", port.describe())).sentence(),
            "connection lost", pair);
}

// Does a card read or write a chip's memory, as far as we know?
bool VerbsConnection::chip_under_way() const {
  return std::any_of(outs_.begin(), outs_.end(),
                     [](const Out &out) {
                       return out.state == Out::writing && out.message != nullptr &&
                              out.message->chip != nullptr && !out.bounce;
                     }) ||
         std::any_of(ins_.begin(), ins_.end(), [](const In &in) {
           return in.state == In::granted && in.into->chip != nullptr && in.into->data != nullptr &&
                  !in.bounce;
         });
}

// A bit per offer of theirs whose payload has not come.
uint32_t VerbsConnection::pending() const {
  uint32_t bits = 0;
  for (uint32_t slot = 0; slot < kVerbsSlots; ++slot) bits |= uint32_t{ins_[slot].state != In::free} << slot;
  return bits;
}

// All that had come over the link has been taken.
void VerbsConnection::report_down() {
  chip_was_under_way_ = chip_under_way();
  const bool worked = stage_ == Stage::used || receives_from_link_;
  Down down{received_, pending(), lost_->cause, lost_->memory, ""};
  for (uint32_t slot = 0; slot < kVerbsSlots; ++slot) {
    In &in = ins_[slot];
    if (in.state != In::granted) continue;
    in.lent.give_back(verbs_.staging_in);
    in.state = In::waiting;
    waiting_ |= 1u << slot;
  }
  copy_text(down.text, lost_->why);
  stream_.push(RecordKind::down, epoch_, &down, sizeof(down));
  want_output();
  our_down_ = down;
  const bool parts = goodbye_ == Goodbye::answered || peer_goodbye_;
  if (worked && !parts && lost_->cause == kToWiden) {
    log(lost_->event,
        concat("meanwhile messages ", verbs_.settings.tcp ? "go over tcp: " : "wait: ", lost_->why));
  } else if (worked && !parts) {
    ++counters_.fallbacks;
    depth_ = std::max(depth_ / 2, kLeastDepth);
    log(lost_->event, concat(verbs_.settings.tcp ? "messages go over tcp" : "messages wait",
                             " until it is made again, with ", depth_, " frames under way: ", lost_->why));
  }
  lost_.reset();
  link_.reset();
  early_.clear();
  receives_from_link_ = false;
  shared_.reactor.cancel(attempt_deadline_);
  if (their_down_) resume();
}

void VerbsConnection::on_down(uint32_t epoch, const Down &down) {
  if (epoch != epoch_) return;
  their_down_ = down;
  if (down.cause == kToWiden) {
    pause_ = 0;
    if (link_) return drop_link(down.text, "queue pairs remade", kToWiden);
  }
  if (link_) {
    return drop_link(concat("the other side left it: ", down.text), "connection lost", down.cause,
                     down.memory != 0);
  }
  if (our_down_) return resume();
  // They gave up before they heard that we had refused, and wait for our word.
  our_down_ = Down{received_, pending(), kNoPair, 0, "no queue pairs were made"};
  stream_.push(RecordKind::down, epoch_, &*our_down_, sizeof(Down));
  want_output();
}

// Both sides are done with the epoch.
void VerbsConnection::resume() {
  const uint32_t received = their_down_->received;
  const bool plausible = received - acked_ <= next_ - acked_;
  if (chip_was_under_way_ && chip_direct_ && (our_down_->memory != 0 || their_down_->memory != 0)) {
    // Registered it was, but an IOMMU or a switch of the bus may forbid cards what the kernel allowed.
    log("memory not reached", concat("a chip's goes through the host's from here on: ", our_down_->text));
    chip_direct_ = false;
  }
  if (carrier_ == Carrier::link) {
    if (!plausible) {
      fail(Status::make(DICOMM_PROTOCOL, "it acknowledges ", received, " frames of ", next_));
      return;
    }
    // What went over the socket before "change" may still be on its way, and comes all the same.
    handed_ = received - over_socket_ > next_ - over_socket_ ? over_socket_ : received;
    withdraw_grants(their_down_->pending);
    carrier_ = Carrier::none;
    if (now() - used_since_ > kSteady) pause_ = 0;
  }
  if (plausible) acked_ = received;
  const std::string why = their_down_->text;
  if (stage_ != Stage::used) return attempt_failed(why);
  stage_ = Stage::none;
  if (verbs_.settings.tcp) carrier_ = Carrier::socket;
  retry_later();
}

// ---- completions ----

bool VerbsConnection::process_completions() {
  if (usable()) link_->poll(completions_);
  const bool worked = !completions_.empty() || lost_.has_value();
  while (!completions_.empty() && fd_.valid()) {
    const Completion completion = completions_.front();
    completions_.pop_front();
    on_completion(completion);
  }
  if (lost_ && fd_.valid()) report_down();
  return worked;
}

void VerbsConnection::on_completion(const Completion &completion) {
  if (completion.status != ibv::wc_success) {
    if (completion.work == Work::drain) return;
    if (lost_) lost_->memory |= is_of_memory(completion.status);  // the other side's word may come first
    const bool known = completion.pair < rails_.size();
    const std::string why = concat(
        verbs_.ports[0]->call().wc_status_str(completion.status), " (ibv_wc_status ", completion.status, ")",
        known ? ", over " + verbs_.ports[rails_[completion.pair]]->describe() : "");
    if (known && (broken_ >> completion.pair & 1) != 0) return;  // behind its probe
    if (known && completion.work == Work::probe && usable()) return not_proven(completion.pair, why);
    const bool silent = completion.status == ibv::wc_retry_exc_err;
    return drop_link(why, silent ? "connection timeout" : "connection lost", completion.pair,
                     is_of_memory(completion.status));
  }
  const bool posts = usable();
  switch (completion.work) {
    case Work::write:
      if (outs_[completion.index].state == Out::writing) sent(outs_[completion.index]);
      break;
    case Work::probe:
      if (posts) proven(completion.index);
      break;
    case Work::receive:
      if (completion.with_slot) {  // a probe
        if (posts) link_->receive_frame(completion.index);
      } else if (!receives_from_link_) {
        early_.emplace_back(completion.index, completion.bytes);
      } else if (take_frame(memory_.place(completion.index), completion.bytes) && usable()) {
        link_->receive_frame(completion.index);
      }
      break;
    case Work::bulk_receive:
      if (posts) link_->receive_payload(completion.index);
      if (completion.imm == kProbe) break;
      if (completion.imm >= kVerbsSlots || ins_[completion.imm].state != In::granted) {
        refuse("a payload that was not offered");
        break;
      }
      complete(ins_[completion.imm]);
      break;
    default:
      break;
  }
}

}  // namespace dicomm
