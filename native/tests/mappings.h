// Memory that a test maps itself.
#pragma once

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace dicomm::test {

inline const size_t kPage = static_cast<size_t>(::sysconf(_SC_PAGESIZE));

inline char *map_pages(size_t pages, void *at = nullptr) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (at != nullptr ? MAP_FIXED : 0);
  void *const data = ::mmap(at, pages * kPage, PROT_READ | PROT_WRITE, flags, -1, 0);
  REQUIRE(data != MAP_FAILED);
  return static_cast<char *>(data);
}

inline uintptr_t address(const void *data) { return reinterpret_cast<uintptr_t>(data); }

// Unmapped at the end, whatever the test did to it. The pages before and after are nobody's.
struct Mapping {
  explicit Mapping(size_t pages) : pages(pages), whole(map_pages(pages + 2)), data(whole + kPage) {
    REQUIRE(::mprotect(whole, kPage, PROT_NONE) == 0);
    REQUIRE(::mprotect(data + pages * kPage, kPage, PROT_NONE) == 0);
  }
  ~Mapping() { ::munmap(whole, (pages + 2) * kPage); }
  Mapping(const Mapping &) = delete;
  Mapping &operator=(const Mapping &) = delete;
  char *page(size_t index) const { return data + index * kPage; }

  const size_t pages;
  char *const whole;
  char *const data;
};

}  // namespace dicomm::test
