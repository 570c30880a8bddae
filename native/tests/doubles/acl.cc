// AscendCL for tests: two chips of host memory, streams that do their work at once. Callbacks wait for the
// thread that is subscribed to their stream, as the real ones do. async_error 1 keeps streams and events
// pending.
#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>

#include "doubles/control.h"

#define EXPORT __attribute__((visibility("default")))

using dicomm::doubles::control;

namespace {

constexpr int kInvalidParam = 100000, kNoContext = 107002, kSyncTimeout = 507046;

struct Block {
  size_t size;
  bool device;
  uint32_t index;
};
struct Callback {
  void (*fn)(void *);
  void *arg;
  void *stream;
};
struct Stream {
  uint64_t thread = 0;  // subscribed
  int callbacks = 0;    // not run yet
};

struct State {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<const char *, Block> blocks;
  std::map<void *, Stream> streams;
  std::map<void *, bool> events;
  std::map<uint64_t, std::deque<Callback>> reports;  // by thread
  long handles = 0x1000;
} state;

char contexts[2];
thread_local void *context = nullptr;

int device() { return static_cast<int>(static_cast<char *>(context) - contexts); }
bool held() { return control().async_error != 0; }
void *handle() { return reinterpret_cast<void *>(state.handles += 16); }

int take(void **out, size_t bytes, bool on_device) {
  char *data = static_cast<char *>(std::calloc(1, bytes));
  const std::lock_guard lock(state.mutex);
  state.blocks[data] = {bytes, on_device, static_cast<uint32_t>(device())};
  *out = data;
  return 0;
}

int give(void *data) {
  const std::lock_guard lock(state.mutex);
  if (state.blocks.erase(static_cast<char *>(data)) == 0) return kInvalidParam;
  std::free(data);
  return 0;
}

bool stream_known(void *stream) { return stream == nullptr || state.streams.count(stream) == 1; }

}  // namespace

#define CALLED(name, ...) \
  if (const int programmed = control().called(name, __VA_ARGS__)) return programmed
#define NEEDS_CONTEXT \
  if (context == nullptr) return kNoContext

extern "C" {

EXPORT int aclInit(const char *config) {
  CALLED("aclInit", "%s", config == nullptr ? "null" : config);
  return 0;
}
EXPORT const char *aclGetRecentErrMsg() { return "EZ9999: the double says so"; }
EXPORT int aclrtGetVersion(int32_t *major, int32_t *minor, int32_t *patch) {
  *major = 1, *minor = 15, *patch = 3;
  return 0;
}
EXPORT const char *aclrtGetSocName() { return "Double910"; }
EXPORT int aclrtGetDeviceCount(uint32_t *count) {
  CALLED("aclrtGetDeviceCount", " ");
  *count = 2;
  return 0;
}
EXPORT int aclrtSetDevice(int32_t index) {
  CALLED("aclrtSetDevice", "%d", index);
  context = contexts + index;
  return 0;
}
EXPORT int aclrtGetCurrentContext(void **out) {
  NEEDS_CONTEXT;
  *out = context;
  return 0;
}
EXPORT int aclrtSetCurrentContext(void *given) {
  CALLED("aclrtSetCurrentContext", "%d", static_cast<int>(static_cast<char *>(given) - contexts));
  context = given;
  return 0;
}
EXPORT int aclrtGetMemInfo(int kind, size_t *free, size_t *total) {
  NEEDS_CONTEXT;
  CALLED("aclrtGetMemInfo", "%d", kind);
  *free = *total = size_t{32} << 30;
  return 0;
}
EXPORT int aclrtMalloc(void **data, size_t bytes, int policy) {
  NEEDS_CONTEXT;
  CALLED("aclrtMalloc", "%zu policy %d on %d", bytes, policy, device());
  return take(data, bytes, true);
}
EXPORT int aclrtFree(void *data) {
  NEEDS_CONTEXT;
  return give(data);
}
EXPORT int aclrtMallocHost(void **data, size_t bytes) {
  NEEDS_CONTEXT;
  CALLED("aclrtMallocHost", "%zu", bytes);
  return take(data, bytes, false);
}
EXPORT int aclrtFreeHost(void *data) {
  NEEDS_CONTEXT;
  return give(data);
}
EXPORT int aclrtPointerGetAttributes(const void *data, void *attributes) {
  NEEDS_CONTEXT;
  const std::lock_guard lock(state.mutex);
  auto after = state.blocks.upper_bound(static_cast<const char *>(data));
  auto *words = static_cast<uint32_t *>(attributes);
  words[1] = 2;  // not registered
  if (after == state.blocks.begin()) return 0;
  const auto &[begin, block] = *--after;
  if (static_cast<const char *>(data) >= begin + block.size) return 0;
  words[0] = block.index;
  words[1] = block.device ? 1 : 0;
  return 0;
}
EXPORT int aclrtMemcpyAsync(void *dst, size_t room, const void *src, size_t bytes, int kind, void *stream) {
  NEEDS_CONTEXT;
  CALLED("aclrtMemcpyAsync", "room %zu bytes %zu kind %d on %d", room, bytes, kind, device());
  const std::lock_guard lock(state.mutex);
  if (!stream_known(stream)) return kInvalidParam;
  if (bytes > 0) std::memmove(dst, src, bytes);
  return 0;
}
EXPORT int aclrtCreateStream(void **stream) {
  NEEDS_CONTEXT;
  CALLED("aclrtCreateStream", "on %d", device());
  const std::lock_guard lock(state.mutex);
  state.streams[ *stream = handle()] = {};
  return 0;
}
EXPORT int aclrtDestroyStream(void *stream) {
  CALLED("aclrtDestroyStream", "%p", stream);
  const std::lock_guard lock(state.mutex);
  return state.streams.erase(stream) == 1 ? 0 : kInvalidParam;
}
EXPORT int aclrtSynchronizeStreamWithTimeout(void *stream, int32_t milliseconds) {
  NEEDS_CONTEXT;
  CALLED("aclrtSynchronizeStreamWithTimeout", "%p %d", stream, milliseconds);
  if (held()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    return kSyncTimeout;
  }
  std::unique_lock lock(state.mutex);
  if (!stream_known(stream)) return kInvalidParam;
  state.changed.wait(lock, [&] { return stream == nullptr || state.streams[stream].callbacks == 0; });
  return 0;
}
EXPORT int aclrtStreamWaitEvent(void *stream, void *event) {
  NEEDS_CONTEXT;
  CALLED("aclrtStreamWaitEvent", "%p %p", stream, event);
  const std::lock_guard lock(state.mutex);
  return stream_known(stream) && state.events.count(event) == 1 ? 0 : kInvalidParam;
}
EXPORT int aclrtCreateEventExWithFlag(void **event, uint32_t flags) {
  NEEDS_CONTEXT;
  CALLED("aclrtCreateEventExWithFlag", "%u", flags);
  const std::lock_guard lock(state.mutex);
  state.events[ *event = handle()] = true;
  return 0;
}
EXPORT int aclrtDestroyEvent(void *event) {
  CALLED("aclrtDestroyEvent", "%p", event);
  const std::lock_guard lock(state.mutex);
  return state.events.erase(event) == 1 ? 0 : kInvalidParam;
}
EXPORT int aclrtRecordEvent(void *event, void *stream) {
  NEEDS_CONTEXT;
  CALLED("aclrtRecordEvent", "%p %p", event, stream);
  const std::lock_guard lock(state.mutex);
  return stream_known(stream) && state.events.count(event) == 1 ? 0 : kInvalidParam;
}
EXPORT int aclrtQueryEventStatus(void *event, int *status) {
  CALLED("aclrtQueryEventStatus", "%p", event);
  *status = held() ? 0 : 1;
  return 0;
}
EXPORT int aclrtQueryEventWaitStatus(void *event, int *status) {
  CALLED("aclrtQueryEventWaitStatus", "%p", event);
  *status = held() ? 1 : 0;
  return 0;
}
EXPORT int aclrtSubscribeReport(uint64_t thread, void *stream) {
  CALLED("aclrtSubscribeReport", "%p", stream);
  const std::lock_guard lock(state.mutex);
  if (!stream_known(stream) || state.streams[stream].thread != 0) return kInvalidParam;
  state.streams[stream].thread = thread;
  return 0;
}
EXPORT int aclrtUnSubscribeReport(uint64_t thread, void *stream) {
  CALLED("aclrtUnSubscribeReport", "%p", stream);
  const std::lock_guard lock(state.mutex);
  if (!stream_known(stream) || state.streams[stream].thread != thread) return kInvalidParam;
  state.streams[stream].thread = 0;
  return 0;
}
EXPORT int aclrtLaunchCallback(void (*fn)(void *), void *arg, int block, void *stream) {
  NEEDS_CONTEXT;
  CALLED("aclrtLaunchCallback", "block %d %p", block, stream);
  const std::lock_guard lock(state.mutex);
  if (!stream_known(stream) || state.streams[stream].thread == 0) return kInvalidParam;
  ++state.streams[stream].callbacks;
  state.reports[state.streams[stream].thread].push_back({fn, arg, stream});
  state.changed.notify_all();
  return 0;
}
EXPORT int aclrtProcessReport(int32_t milliseconds) {
  constexpr int kReportTimeout = 107013;
  std::unique_lock lock(state.mutex);
  auto &mine = state.reports[static_cast<uint64_t>(pthread_self())];
  const auto some = [&] { return !mine.empty(); };
  if (!state.changed.wait_for(lock, std::chrono::milliseconds(milliseconds), some)) return kReportTimeout;
  const Callback callback = mine.front();
  mine.pop_front();
  lock.unlock();
  callback.fn(callback.arg);
  lock.lock();
  --state.streams[callback.stream].callbacks;
  state.changed.notify_all();
  return 0;
}
}
