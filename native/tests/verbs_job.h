// Two processes with an rdma transport each, over the double of libibverbs or the cards of this machine.
#pragma once

#include <map>
#include <random>

#include "doubles/double.h"
#include "transport/verbs/transport.h"
#include "transport_suite.h"
#include "verbs_double.h"

namespace dicomm::test {

// Of what the tests run over: the double, or the cards of this machine.
struct Knobs {
  bool real = false;
  bool direct = true, staged = true, tcp = true;
  bool chip = false;  // see suite::Setup
  uint32_t queue_pairs = 1, depth = 32;
  size_t devices = 1;  // of the double
  uint16_t pkey_index = 0;
  Nanos connect_timeout = 10 * kSecond;
};

inline std::vector<std::string> &log_lines() {
  static std::vector<std::string> lines;
  return lines;
}

// Of the ranks' processes, where a test gives them.
inline std::map<ContextId, std::string> &rank_names() {
  static std::map<ContextId, std::string> names;
  return names;
}

inline suite::Party::Make rdma(const Knobs &knobs = {}) {
  return [=](Reactor &reactor, Sink &sink, const PeerAddress &self) -> std::unique_ptr<Transport> {
    VerbsOptions options;
    options.self = self;
    if (!knobs.real) options.interface = "127.0.0.1";
    options.connect_timeout = knobs.connect_timeout;
    if (!knobs.real) options.settings.library = test::double_path("ibverbs");
    options.settings.direct = knobs.direct;
    options.settings.staged = knobs.staged;
    options.settings.tcp = knobs.tcp;
    options.settings.queue_pairs = knobs.queue_pairs;
    options.settings.pkey_index = knobs.pkey_index;
    options.settings.queue_depth = knobs.depth;
    options.log = [](const std::string &line) { log_lines().push_back(line); };
    options.name_of = [](const ContextId &id) { return rank_names()[id]; };
    auto transport = std::make_unique<VerbsTransport>(reactor, sink, options);
    const Status status = transport->open();
    INFO(status.message());
    REQUIRE(status.ok());
    return transport;
  };
}

inline suite::Setup over_double(const Knobs &knobs) { return {rdma(knobs), false, false, "", knobs.chip}; }

struct Job {
  explicit Job(const Knobs &knobs = {}) : verbs(knobs.devices), pair(over_double(knobs)) {
    log_lines().clear();
    rank_names().clear();
  }
  suite::Party &a() { return pair.a; }
  suite::Party &b() { return *pair.other; }
  Endpoint &to_b() { return a().transport->endpoint(b().self); }
  Endpoint &to_a() { return b().transport->endpoint(a().self); }

  // Messages of both lanes and all sizes, both ways, from inside the traffic.
  void traffic(int count, std::mt19937 &random) {
    for (int i = 0; i < count; ++i) {
      const bool bulk = random() % 2 == 0;
      const size_t size = bulk ? random() % 1048577 : random() % (random() % 5 == 0 ? 60000 : 300);
      suite::Party &from = random() % 2 == 0 ? a() : b();
      from.send(&from == &a() ? b() : a(), bulk ? Lane::bulk : Lane::control, size);
      for (unsigned steps = random() % 6; steps > 0; --steps) (random() % 2 == 0 ? a() : b()).step();
    }
  }
  bool finish() {
    return pair.drive([&] {
      return a().complete() == b().sent.size() && b().complete() == a().sent.size() && a().all_sent() &&
             b().all_sent();
    });
  }
  void check() {
    check_delivery(a(), b(), false);
    check_delivery(b(), a(), false);
    CHECK(a().failed.empty());
    CHECK(b().failed.empty());
  }
  // One message each way, so that queue pairs stand.
  void meet() {
    a().send(b(), Lane::control, 1);
    b().send(a(), Lane::control, 1);
    REQUIRE(finish());
    REQUIRE(pair.drive([&] { return std::string(to_b().path()) != "tcp"; }));
  }

  test::VerbsDouble verbs;
  suite::Pair pair;
};

}  // namespace dicomm::test
