// Writing and reading small records: fixed-width integers and length-prefixed strings, bounded on the way in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace dicomm {

class ByteWriter {
 public:
  template <class T>
  ByteWriter &put(const T &value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto *from = reinterpret_cast<const std::byte *>(&value);
    bytes_.insert(bytes_.end(), from, from + sizeof value);
    return *this;
  }
  ByteWriter &text(const std::string &value) {
    put(static_cast<uint32_t>(value.size()));
    const auto *from = reinterpret_cast<const std::byte *>(value.data());
    bytes_.insert(bytes_.end(), from, from + value.size());
    return *this;
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// After an attempt to read past the end ok() is false and everything reads as zero or empty.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class T>
  T get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    if (const std::byte *from = advance(sizeof value)) std::memcpy(&value, from, sizeof value);
    return value;
  }
  std::string text() {
    const uint32_t size = get<uint32_t>();
    const std::byte *from = advance(size);
    return from == nullptr ? std::string() : std::string(reinterpret_cast<const char *>(from), size);
  }
  bool ok() const { return ok_; }
  bool at_end() const { return bytes_.empty(); }

 private:
  const std::byte *advance(size_t n) {
    if (!ok_ || n > bytes_.size()) {
      ok_ = false;
      return nullptr;
    }
    const std::byte *at = bytes_.data();
    bytes_ = bytes_.subspan(n);
    return at;
  }

  std::span<const std::byte> bytes_;
  bool ok_ = true;
};

}  // namespace dicomm
