#include "ccl/sim/library.h"

#include <algorithm>
#include <cstring>

#include "base/sha256.h"
#include "ccl/sim/group.h"
#include "device/host/kernels.h"

namespace dicomm {

namespace {

constexpr int kVersion = 1;
constexpr size_t kIdBytes = 256;  // the secret, then the store's url and zeros

CclCapabilities capabilities_of(const SimProfile &profile) {
  const auto moves = [dtypes = profile.dtypes](dicomm_dtype dtype) {
    return dicomm_dtype_size(dtype) != 0 && (dtypes >> dtype & 1) != 0;
  };
  CclCapabilities capabilities;
  capabilities.moves = moves;
  capabilities.reduces = [moves, avg = profile.avg](dicomm_dtype dtype, dicomm_reduce op) {
    // Most libraries leave premul_sum to the caller, too.
    return moves(dtype) && op != DICOMM_PREMUL_SUM && (op != DICOMM_AVG || avg) &&
           reduction_supported(dtype, op);
  };
  capabilities.send_recv = profile.send_recv;
  capabilities.aborts = true;
  capabilities.tells_errors = true;
  capabilities.version = kVersion;
  return capabilities;
}

}  // namespace

SimCcl::SimCcl(SimCclOptions options)
    : options_(std::move(options)),
      name_(options_.profile.brand + "-ccl"),
      capabilities_(capabilities_of(options_.profile)) {}

SimCcl::~SimCcl() {
  for (const auto &[id, store] : served_) dicomm_store_close(store);
}

std::string SimCcl::describe() const { return concat(name_, " ", kVersion, ", simulated"); }

Status SimCcl::make_id(CclId &out) {
  SimCclSession::Meeting meeting;
  meeting.secret.resize(SimCclSession::kSecretBytes);
  random_bytes(std::as_writable_bytes(std::span(meeting.secret)));
  dicomm_store *store = nullptr;
  DICOMM_TRY(serve_sim_store(name_, options_.address, meeting.secret, store));
  meeting.url.resize(dicomm_store_url(store, nullptr, 0));
  dicomm_store_url(store, meeting.url.data(), meeting.url.size() + 1);
  const std::string text = meeting.secret + meeting.url;
  out.assign(kIdBytes, std::byte{0});
  std::memcpy(out.data(), text.data(), std::min(text.size(), kIdBytes));
  std::lock_guard lock(mutex_);
  served_[out] = store;
  return {};
}

Status SimCcl::join(const CclId &id, int rank, int size, Device &device, int64_t timeout_ns,
                    std::unique_ptr<CclGroup> &out) {
  if (size < 1 || rank < 0 || rank >= size || id.size() != kIdBytes)
    return Status::make(DICOMM_INVALID_ARGUMENT, name_, ": rank ", rank, " of ", size, " with an id of ",
                        id.size(), " bytes");
  if (device.vendor() != options_.profile.brand)
    return Status::make(DICOMM_INVALID_ARGUMENT, name_, " does not serve chips of ", device.vendor());
  const Nanos deadline = timeout_ns == DICOMM_TIMEOUT_NEVER ? kNever : deadline_after(timeout_ns);
  std::string secret(reinterpret_cast<const char *>(id.data()), SimCclSession::kSecretBytes);
  std::string url(reinterpret_cast<const char *>(id.data()) + secret.size(), id.size() - secret.size());
  url.resize(std::min(url.find('\0'), url.size()));
  const SimCclSession::Meeting meeting{std::move(url), std::move(secret)};
  dicomm_store *served = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (auto node = served_.extract(id)) served = node.mapped();
  }
  auto session = std::make_shared<SimCclSession>(name_, options_.profile.brand, rank, size);
  DICOMM_TRY(session->join(meeting, served, options_.address, deadline));
  out = std::make_unique<SimCclGroup>(capabilities_, options_.profile.link_gbs, std::move(session));
  return {};
}

}  // namespace dicomm
