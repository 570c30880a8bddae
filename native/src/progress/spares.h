// Spares: objects that wait to be used again, so that starting an operation allocates nothing.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

namespace dicomm {

// Safe from any thread. T makes Spares<T> its friend when its destructor is not public.
template <class T>
class Spares {
 public:
  Spares() { idle_.reserve(kMost); }
  ~Spares() { close(); }
  // Null: there is none.
  T *take() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return nullptr;
    T *spare = idle_.back();
    idle_.pop_back();
    return spare;
  }
  void give(T *object) {
    {
      const std::lock_guard lock(mutex_);
      if (!closed_ && idle_.size() < kMost) {
        idle_.push_back(object);
        return;
      }
    }
    delete object;
  }
  // Frees what is idle; what comes from now on is freed at once.
  void close() {
    std::vector<T *> idle;
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
      idle.swap(idle_);
    }
    for (T *object : idle) delete object;
  }

 private:
  static constexpr size_t kMost = 16;
  std::mutex mutex_;
  std::vector<T *> idle_;
  bool closed_ = false;
};

}  // namespace dicomm
