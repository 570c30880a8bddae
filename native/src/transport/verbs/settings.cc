#include "transport/verbs/settings.h"

#include <bit>
#include <charconv>
#include <string_view>

namespace dicomm {

namespace {

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// Calls visit(part) for the parts of `text` between separators.
template <class Visit>
Status each(std::string_view text, char separator, Visit visit) {
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    DICOMM_TRY(visit(trim(text.substr(0, end))));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return {};
}

template <class Number>
Status number(std::string_view name, std::string_view text, int64_t low, int64_t high, Number &out) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high)
    return Status::make(DICOMM_INVALID_ARGUMENT, "RDMA setting ", name, "=", text, ": a number from ", low,
                        " to ", high, " is wanted");
  out = static_cast<Number>(value);
  return {};
}

Status set(std::string_view name, std::string_view value, VerbsSettings &out) {
  if (name == "devices")
    return each(value, '+', [&](std::string_view device) {
      out.devices.emplace_back(device);
      return Status();
    });
  if (name == "library") {
    out.library = value;
    return {};
  }
  if (name == "gid_index") return number(name, value, 0, 255, out.gid_index);
  if (name == "pkey_index") return number(name, value, 0, 65535, out.pkey_index);
  if (name == "service_level") return number(name, value, 0, 15, out.service_level);
  if (name == "traffic_class") return number(name, value, 0, 255, out.traffic_class);
  if (name == "timeout") return number(name, value, 1, 31, out.timeout);
  if (name == "retry_count") return number(name, value, 0, 7, out.retry_count);
  if (name == "mtu") return number(name, value, 256, 4096, out.mtu);
  if (name == "queue_pairs") return number(name, value, 1, 8, out.queue_pairs);
  if (name == "queue_depth") {
    DICOMM_TRY(number(name, value, 8, 1024, out.queue_depth));
    out.queue_depth = std::bit_ceil(out.queue_depth);  // frame numbers wrap
    return {};
  }
  return Status::make(
      DICOMM_INVALID_ARGUMENT, "RDMA setting '", name,
      "' is not one of: devices library gid_index pkey_index service_level traffic_class timeout "
      "retry_count mtu queue_pairs queue_depth");
}

}  // namespace

Status parse_verbs_settings(const std::string &text, VerbsSettings &out) {
  return each(text, ',', [&](std::string_view item) {
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos)
      return Status::make(DICOMM_INVALID_ARGUMENT, "RDMA setting '", item, "' is not of the form name=value");
    return set(trim(item.substr(0, equals)), trim(item.substr(equals + 1)), out);
  });
}

}  // namespace dicomm
