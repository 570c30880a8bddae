// describe_host: what Linux tells of network cards and NUMA nodes under /sys. What it does not tell is left
// out.

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>

#include "comm/chip.h"

namespace dicomm {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMostNics = 16;  // a host of containers has hundreds of virtual ones
constexpr const char *kNet = "/sys/class/net";
constexpr const char *kInfiniband = "/sys/class/infiniband";

// The first line, "" when there is none to read.
std::string read_line(const fs::path &path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The number that a text begins with.
template <class Number>
Number number_or(const std::string &text, Number otherwise) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? value : otherwise;
}

std::vector<fs::path> entries(const char *folder) {
  std::error_code error;
  std::vector<fs::path> out;
  for (const auto &entry : fs::directory_iterator(folder, error)) out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

// Cards for RDMA: of each, the first port that is up.
void find_infiniband(std::vector<Nic> &out) {
  for (const fs::path &card : entries(kInfiniband)) {
    for (const fs::path &port : entries((card / "ports").c_str())) {
      if (read_line(port / "state").find("ACTIVE") == std::string::npos) continue;
      const bool roce = read_line(port / "link_layer") == "Ethernet";
      const double gbit_s = number_or(read_line(port / "rate"), 0.0);  // "100 Gb/sec (4X EDR)"
      out.push_back({card.filename(), roce ? "roce" : "infiniband", static_cast<uint32_t>(gbit_s * 1000),
                     number_or(read_line(card / "device/numa_node"), -1)});
      break;
    }
  }
}

// Interfaces that are up, other than loopback.
void find_interfaces(std::vector<Nic> &out) {
  constexpr int kEthernet = 1, kInfinibandLink = 32;  // ARPHRD_*
  for (const fs::path &interface : entries(kNet)) {
    const int type = number_or(read_line(interface / "type"), -1);
    if (type != kEthernet && type != kInfinibandLink) continue;
    if (read_line(interface / "operstate") == "down") continue;
    const int speed = number_or(read_line(interface / "speed"), 0);  // -1: not known
    out.push_back({interface.filename(), type == kEthernet ? "ethernet" : "ipoib",
                   static_cast<uint32_t>(std::max(speed, 0)),
                   number_or(read_line(interface / "device/numa_node"), -1)});
  }
}

// "0-3,8-11" has the number?
bool in_list(const std::string &list, int number) {
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string part = list.substr(begin, end - begin);
    const size_t dash = part.find('-');
    const int first = number_or(part, -1);
    const int last = dash == std::string::npos ? first : number_or(part.substr(dash + 1), -1);
    if (first <= number && number <= last) return true;
    begin = end + 1;
  }
  return false;
}

bool within(const cpu_set_t &processors, const std::string &list) {
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &processors) && !in_list(list, cpu)) return false;
  }
  return true;
}

// The node that has all processors this process may use.
int numa_node() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return -1;
  for (const fs::path &node : entries("/sys/devices/system/node")) {
    const std::string name = node.filename();
    if (name.starts_with("node") && within(allowed, read_line(node / "cpulist"))) {
      return number_or(name.substr(4), -1);
    }
  }
  return -1;
}

}  // namespace

void describe_host(RankInfo &out) {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  out.host = host;
  out.version = DICOMM_VERSION;
  out.numa = numa_node();
  find_infiniband(out.nics);
  find_interfaces(out.nics);
  if (out.nics.size() > kMostNics) out.nics.resize(kMostNics);
}

}  // namespace dicomm
