#include "base/error.h"

#include <algorithm>
#include <cstring>

namespace dicomm {

namespace {

// Messages give seconds with three decimals.
constexpr int64_t kMessageTick = 1000000;

void copy_text(char *to, size_t cap, const std::string &from) {
  const size_t n = std::min(cap - 1, from.size());
  std::memcpy(to, from.data(), n);
  to[n] = 0;
}

}  // namespace

Status Status::system_failure(dicomm_status code, int error, std::string_view what) {
  Failure failure;
  failure.code = code;
  failure.text = concat(what, ": ", std::strerror(error));
  failure.foreign_domain = "errno";
  failure.foreign_code = error;
  return Status(std::move(failure));
}

std::string Status::message() const {
  if (!failure_) return dicomm_status_text(DICOMM_OK);
  return concat(sentence(), " [", dicomm_status_name(failure_->code), "]");
}

std::string Status::sentence() const {
  if (!failure_) return "";
  const Failure &f = *failure_;
  std::ostringstream out;
  if (!f.op.empty()) {
    out << f.op;
    if (f.seq >= 0) out << " #" << f.seq;
    if (f.rank >= 0) out << " on rank " << f.rank;
    if (f.peer >= 0) {
      out << " with rank " << f.peer;
      if (!f.peer_host.empty()) out << " (" << f.peer_host << ")";
    }
    if (!f.path.empty()) out << " over " << f.path;
    out << ", " << f.bytes << " bytes";
    if (f.waited_ns > 0) out << ", after " << static_cast<double>(f.waited_ns / kMessageTick) / 1000 << " s";
    out << ": ";
  }
  out << f.text;
  if (!f.foreign_domain.empty()) out << " (" << f.foreign_domain << " " << f.foreign_code << ")";
  return out.str();
}

void Status::fill(dicomm_error *out) const {
  *out = {};
  out->rank = out->peer = -1;
  out->seq = -1;
  if (!failure_) return;
  const Failure &f = *failure_;
  out->status = f.code;
  out->rank = f.rank;
  out->peer = f.peer;
  out->foreign_code = f.foreign_code;
  out->seq = f.seq;
  out->bytes = f.bytes;
  out->waited_ns = f.waited_ns;
  copy_text(out->foreign_domain, sizeof out->foreign_domain, f.foreign_domain);
  copy_text(out->op, sizeof out->op, f.op);
  copy_text(out->path, sizeof out->path, f.path);
  copy_text(out->peer_host, sizeof out->peer_host, f.peer_host);
  copy_text(out->message, sizeof out->message, message());
}

}  // namespace dicomm
