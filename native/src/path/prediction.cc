#include "path/prediction.h"

#include <algorithm>
#include <iomanip>
#include <limits>
#include <sstream>

#include "model/bound.h"
#include "model/simulate.h"
#include "path/words.h"

namespace dicomm {

namespace {

using model::Picoseconds;
using model::Prediction;

constexpr size_t kHostsShown = 16;

std::string time_text(Picoseconds time) {
  std::ostringstream out;
  out << std::fixed;
  const double us = static_cast<double>(time) / 1e6;
  if (us < 1e4) {
    out << std::setprecision(2) << us << " us";
  } else {
    out << std::setprecision(3) << us / 1e3 << " ms";
  }
  return out.str();
}

std::string ratio_text(Picoseconds time, Picoseconds bound) {
  if (bound == 0) return "-";
  std::ostringstream out;
  out << std::fixed << std::setprecision(3) << static_cast<double>(time) / static_cast<double>(bound);
  return out.str();
}

struct Row {
  const Algorithm *algorithm;
  Status status;
  Prediction prediction;
  Picoseconds order() const {
    return status.ok() ? prediction.time : std::numeric_limits<Picoseconds>::max();
  }
  uint64_t crossing() const {
    uint64_t bytes = 0;
    for (const model::HostTraffic &host : prediction.hosts) bytes += host.sent;
    return bytes;
  }
};

std::vector<Row> simulate_all(const std::vector<Problem> &problems, const Topology &topology,
                              const model::Machine &machine) {
  std::vector<Row> rows;
  for (const Algorithm &algorithm : algorithms()) {
    if (algorithm.op != problems[0].op || !algorithm.fits(problems[0])) continue;
    Row row{&algorithm, {}, {}};
    row.status = model::simulate(algorithm, problems, topology, machine, row.prediction);
    rows.push_back(std::move(row));
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row &a, const Row &b) { return a.order() < b.order(); });
  return rows;
}

void print_path(std::ostream &out, const model::CriticalPath &path) {
  out << "  critical path: " << path.messages << " messages (" << path.remote_messages << " between hosts), "
      << path.computations << " copies and reductions\n"
      << "    latency " << time_text(path.latency) << ", bytes " << time_text(path.transfer)
      << ", arithmetic " << time_text(path.arithmetic) << ", waiting for what others use "
      << time_text(path.waiting) << '\n';
}

void print_hosts(std::ostream &out, const std::vector<model::HostTraffic> &hosts) {
  if (hosts.size() < 2) return;
  out << std::left << "  " << std::setw(8) << "host" << std::setw(8) << "ranks" << std::setw(20)
      << "NIC out, bytes" << "NIC in, bytes\n";
  for (size_t i = 0; i < std::min(hosts.size(), kHostsShown); ++i) {
    out << "  " << std::setw(8) << i << std::setw(8) << hosts[i].ranks << std::setw(20) << hosts[i].sent
        << hosts[i].received << '\n';
  }
  if (hosts.size() <= kHostsShown) return;
  uint64_t sent = 0, received = 0;
  for (size_t i = kHostsShown; i < hosts.size(); ++i) {
    sent = std::max(sent, hosts[i].sent);
    received = std::max(received, hosts[i].received);
  }
  out << "  and " << hosts.size() - kHostsShown << " more with at most " << sent << " out and " << received
      << " in\n";
}

void print_table(std::ostream &out, const std::vector<Row> &rows, Picoseconds bound) {
  out << std::left << std::setw(20) << "algorithm" << std::setw(16) << "predicted" << std::setw(10)
      << "/ bound" << std::setw(12) << "messages" << std::setw(12) << "steps" << "bytes between hosts\n";
  for (const Row &row : rows) {
    out << std::setw(20) << row.algorithm->name;
    if (!row.status.ok()) {
      out << "not simulated: " << row.status.failure()->text << '\n';
      continue;
    }
    const Prediction &made = row.prediction;
    out << std::setw(16) << time_text(made.time) << std::setw(10) << ratio_text(made.time, bound)
        << std::setw(12) << made.messages << std::setw(12) << made.steps << row.crossing() << '\n';
  }
}

void print_machine(std::ostream &out, const model::Machine &machine) {
  out << "machine: inside a host " << machine.local_latency * 1e6 << " us and "
      << machine.local_bandwidth / 1e9 << " GB/s; between hosts " << machine.remote_latency * 1e6 << " us, "
      << machine.remote_bandwidth / 1e9 << " GB/s a rank, " << machine.nic_bandwidth * 8 / 1e9
      << " Gbit/s a host; " << machine.overhead * 1e6 << " us per message and end; reductions "
      << machine.reduce_bandwidth / 1e9 << " GB/s, copies " << machine.copy_bandwidth / 1e9
      << " GB/s; messages above " << bytes_text(machine.eager_bytes) << " bytes ask first\n";
}

}  // namespace

std::string predict(const Algorithm &chosen, const std::vector<Problem> &problems, const Topology &topology,
                    const model::Machine &machine) {
  const model::Bound bound = model::lower_bound(problems, topology, machine);
  const std::vector<Row> rows = simulate_all(problems, topology, machine);
  std::ostringstream out;
  const auto row = std::find_if(rows.begin(), rows.end(),
                                [&](const Row &candidate) { return candidate.algorithm == &chosen; });
  if (row->status.ok()) {
    out << "  predicted " << time_text(row->prediction.time) << ", "
        << ratio_text(row->prediction.time, bound.time) << " of the bound " << time_text(bound.time) << " ("
        << bound.reason << ")\n";
    print_path(out, row->prediction.path);
    print_hosts(out, row->prediction.hosts);
  } else {
    out << "  not simulated: " << row->status.failure()->text << '\n';
  }
  print_table(out, rows, bound.time);
  print_machine(out, machine);
  return out.str();
}

}  // namespace dicomm
