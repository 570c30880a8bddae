#include "store/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "base/sha256.h"
#include "store/wire.h"

namespace dicomm {
namespace {

constexpr Nanos kFirstPause = kMillisecond;
constexpr Nanos kMaxPause = 20 * kMillisecond;
constexpr size_t kNameBytes = 200;  // file systems allow 255

// Sleeps, longer each time, but not past the deadline. False: the deadline has passed.
bool pause_before(Nanos deadline, Nanos &pause) {
  const Nanos left = deadline - now();
  if (left <= 0) return false;
  const Nanos time = std::min(pause, left);
  const timespec t{static_cast<time_t>(time / kSecond), static_cast<long>(time % kSecond)};
  ::nanosleep(&t, nullptr);
  pause = std::min(2 * pause, kMaxPause);
  return true;
}

Status write_file(const std::string &name, std::span<const std::byte> bytes) {
  const UniqueFd fd(::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.valid()) return Status::from_errno(errno, "cannot create ", name);
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd.get(), bytes.data(), bytes.size());
    if (n < 0 && errno != EINTR) return Status::from_errno(errno, "cannot write ", name);
    if (n > 0) bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

}  // namespace

Status FileStore::open() {
  if (::mkdir(directory_.c_str(), 0700) != 0 && errno != EEXIST)
    return Status::from_errno(errno, "file store: cannot make the directory ", directory_);
  struct stat info;
  if (::stat(directory_.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
    return Status::make(DICOMM_INVALID_ARGUMENT, "file store: ", directory_, " is not a directory");
  return {};
}

// Letters, digits, '-' and '_' stand for themselves, other bytes as %XX; what gets too long ends in a hash of
// the key. No name begins with '.', which is for temporary and lock files.
std::string FileStore::file_of(std::string_view key) const {
  constexpr char kHex[] = "0123456789abcdef";
  const auto hex = [&](std::string &to, unsigned char byte) { to += {kHex[byte >> 4], kHex[byte & 15]}; };
  std::string name = "k";
  for (const char c : key) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (plain || c == '-' || c == '_') {
      name += c;
    } else {
      name += '%';
      hex(name, static_cast<unsigned char>(c));
    }
  }
  if (name.size() > kNameBytes) {
    Sha256 hash;
    hash.update({reinterpret_cast<const std::byte *>(key.data()), key.size()});
    name.resize(kNameBytes - 65);
    name += '.';
    for (const std::byte b : hash.finish()) hex(name, std::to_integer<unsigned char>(b));
  }
  return directory_ + '/' + name;
}

Status FileStore::set(std::string_view key, std::span<const std::byte> value) {
  DICOMM_TRY(check_entry(key, value.size()));
  std::array<std::byte, 8> nonce;
  random_bytes(nonce);
  std::string temporary = directory_ + "/.new-";
  for (const std::byte b : nonce) temporary += std::to_string(std::to_integer<int>(b)) + '-';
  Status status = write_file(temporary, value);
  if (status.ok() && ::rename(temporary.c_str(), file_of(key).c_str()) != 0)
    status = Status::from_errno(errno, "cannot rename ", temporary);
  if (!status.ok()) ::unlink(temporary.c_str());
  return status.with([&](Failure &f) { f.text = concat("file store, key '", key, "': ", f.text); });
}

Status FileStore::read(std::string_view key, std::vector<std::byte> &value, bool &exists) const {
  const std::string name = file_of(key);
  const UniqueFd fd(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
  exists = fd.valid();
  if (!exists && errno == ENOENT) return {};
  struct stat info{};
  if (!exists || ::fstat(fd.get(), &info) != 0)
    return Status::from_errno(errno, "file store: cannot read ", name);
  if (static_cast<uint64_t>(info.st_size) > kMaxValueBytes)
    return Status::make(DICOMM_INVALID_ARGUMENT, "file store: ", name, " is too long for a value");
  value.resize(static_cast<size_t>(info.st_size));
  for (size_t done = 0; done < value.size();) {
    const ssize_t n = ::read(fd.get(), value.data() + done, value.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Status::from_errno(errno, "file store: cannot read ", name);
    if (n == 0) value.resize(done);
    done += static_cast<size_t>(n);
  }
  return {};
}

Status FileStore::get(std::string_view key, std::vector<std::byte> &value, Nanos deadline) {
  DICOMM_TRY(check_entry(key, 0));
  const Nanos start = now();
  for (Nanos pause = kFirstPause;;) {
    bool exists = false;
    std::vector<std::byte> found;
    DICOMM_TRY(read(key, found, exists));
    if (exists) {
      value = std::move(found);
      return {};
    }
    if (pause_before(deadline, pause)) continue;
    const Nanos waited = now() - start;
    return Status::make(DICOMM_TIMED_OUT, "file store at ", directory_, ", key '", key, "', after ",
                        seconds(waited), " s: nobody has set it")
        .with([&](Failure &f) { f.waited_ns = waited; });
  }
}

Status FileStore::check(std::string_view key, bool &exists) {
  DICOMM_TRY(check_entry(key, 0));
  std::vector<std::byte> ignored;
  return read(key, ignored, exists);
}

// Open file description locks also keep two stores of one process apart, work over NFS, and end with their
// holder.
Status FileStore::lock(UniqueFd &out) const {
  const std::string name = directory_ + "/.lock";
  out.reset(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!out.valid()) return Status::from_errno(errno, "file store: cannot open ", name);
  const Nanos deadline = answer_deadline(timeout_);
  for (Nanos pause = kFirstPause;;) {
    struct flock whole{};
    whole.l_type = F_WRLCK;
    if (::fcntl(out.get(), F_OFD_SETLK, &whole) == 0) return {};
    if (errno != EAGAIN && errno != EACCES && errno != EINTR)
      return Status::from_errno(errno, "file store: cannot lock ", name);
    if (!pause_before(deadline, pause))
      return Status::make(DICOMM_TIMED_OUT, "file store: ", name, " stays locked by another process");
  }
}

Status FileStore::add(std::string_view key, int64_t delta, int64_t &result) {
  DICOMM_TRY(check_entry(key, 0));
  UniqueFd held;
  DICOMM_TRY(lock(held));
  std::vector<std::byte> value;
  bool exists = false;
  DICOMM_TRY(read(key, value, exists));
  int64_t sum = 0;
  const char *text = reinterpret_cast<const char *>(value.data());
  if (exists) {
    const auto parsed = std::from_chars(text, text + value.size(), sum);
    if (parsed.ec != std::errc() || parsed.ptr != text + value.size())
      return Status::make(DICOMM_INVALID_ARGUMENT, "file store, key '", key,
                          "': the value is not a decimal number");
  }
  if (__builtin_add_overflow(sum, delta, &sum))
    return Status::make(DICOMM_INVALID_ARGUMENT, "file store, key '", key,
                        "': the sum does not fit into 64 bits");
  const std::string decimal = std::to_string(sum);
  DICOMM_TRY(set(key, std::as_bytes(std::span(decimal))));
  result = sum;
  return {};
}

}  // namespace dicomm
