// A store in a directory that all ranks see, for instance on a shared file system: one file per key.
#pragma once

#include "base/unique_fd.h"
#include "store/store.h"

namespace dicomm {

class FileStore final : public Store {
 public:
  FileStore(std::string directory, Nanos timeout) : directory_(std::move(directory)), timeout_(timeout) {}
  Status open();  // makes the directory if it is not there

  Status set(std::string_view key, std::span<const std::byte> value) override;
  Status get(std::string_view key, std::vector<std::byte> &value, Nanos deadline) override;
  Status check(std::string_view key, bool &exists) override;
  Status add(std::string_view key, int64_t delta, int64_t &result) override;
  std::string url() const override { return "file://" + directory_; }

 private:
  std::string file_of(std::string_view key) const;
  Status read(std::string_view key, std::vector<std::byte> &value, bool &exists) const;
  Status lock(UniqueFd &out) const;

  const std::string directory_;
  const Nanos timeout_;
};

}  // namespace dicomm
