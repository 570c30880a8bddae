// A run time with CUDA's interface for tests: host memory, and streams that do their work at once. Compiled
// several times:
//   DOUBLE_PREFIX   of its functions: cuda, hip, mc
//   DOUBLE_HIP      HostMalloc and HostFree, memory types as before ROCm 6
//   DOUBLE_MACA     MallocHost
// Two chips. What is asked for by name of a call fails as programmed; `hold` keeps streams and events
// pending.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>

#include "doubles/control.h"

#define DOUBLE_JOIN_(a, b) a##b
#define DOUBLE_JOIN(a, b) DOUBLE_JOIN_(a, b)
#define N(name) DOUBLE_JOIN(DOUBLE_PREFIX, name)
#define EXPORT __attribute__((visibility("default")))

using dicomm::doubles::control;

namespace {

constexpr int kNotReady = 600, kInvalidValue = 1, kInvalidDevice = 101;
#ifdef DOUBLE_HIP
constexpr int kTypeDevice = 1, kTypeHost = 0;
constexpr int kVersion = 50700000;
#else
constexpr int kTypeDevice = 2, kTypeHost = 1;
constexpr int kVersion = 12040;
#endif

struct Block {
  size_t size;
  int type, device;
};

struct State {
  std::mutex mutex;
  std::map<const char *, Block> blocks;
  std::map<void *, int> streams, events;  // and their chip
  std::atomic<int> callbacks{0};          // under way
  std::atomic<long> handles{0x1000};
} state;

thread_local int current = 0;
thread_local int last_error = 0;

int end(int code) {
  if (code != 0) last_error = code;
  return code;
}

int take(void **out, size_t bytes, int type) {
  char *data = static_cast<char *>(std::calloc(1, bytes));
  const std::lock_guard lock(state.mutex);
  state.blocks[data] = {bytes, type, current};
  *out = data;
  return 0;
}

int give(void *data) {
  const std::lock_guard lock(state.mutex);
  if (state.blocks.erase(static_cast<char *>(data)) == 0) return end(kInvalidValue);
  std::free(data);
  return 0;
}

int make(std::map<void *, int> &kind, void **out) {
  void *handle = reinterpret_cast<void *>(state.handles += 16);
  const std::lock_guard lock(state.mutex);
  kind[handle] = current;
  *out = handle;
  return 0;
}

int drop(std::map<void *, int> &kind, void *handle) {
  const std::lock_guard lock(state.mutex);
  return kind.erase(handle) == 1 ? 0 : end(kInvalidValue);
}

bool known(const std::map<void *, int> &kind, void *handle) {
  const std::lock_guard lock(state.mutex);
  return kind.count(handle) == 1;
}

bool stream_known(void *stream) { return stream == nullptr || known(state.streams, stream); }

bool held() { return control().async_error == kNotReady; }

void settle() {
  while (state.callbacks > 0) std::this_thread::yield();
}

}  // namespace

#define CALLED(name, ...) \
  if (const int programmed = control().called(name, __VA_ARGS__)) return end(programmed)

extern "C" {

EXPORT int N(GetDeviceCount)(int *count) {
  CALLED("GetDeviceCount", " ");
  *count = 2;
  return 0;
}
EXPORT int N(GetDevice)(int *device) {
  CALLED("GetDevice", " ");
  *device = current;
  return 0;
}
EXPORT int N(SetDevice)(int device) {
  CALLED("SetDevice", "%d", device);
  if (device < 0 || device > 1) return end(kInvalidDevice);
  current = device;
  return 0;
}
EXPORT int N(Malloc)(void **data, size_t bytes) {
  CALLED("Malloc", "%zu on %d", bytes, current);
  return take(data, bytes, kTypeDevice);
}
EXPORT int N(Free)(void *data) {
  CALLED("Free", " ");
  return give(data);
}
static int host_alloc(void **data, size_t bytes, unsigned flags) {
  CALLED("HostAlloc", "%zu flags %u on %d", bytes, flags, current);
  return take(data, bytes, kTypeHost);
}
static int host_free(void *data) {
  CALLED("FreeHost", " ");
  return give(data);
}
#if defined(DOUBLE_HIP)
EXPORT int N(HostMalloc)(void **data, size_t bytes, unsigned flags) { return host_alloc(data, bytes, flags); }
EXPORT int N(HostFree)(void *data) { return host_free(data); }
EXPORT int N(DeviceGetName)(char *text, int length, int device) {
  std::snprintf(text, static_cast<size_t>(length), "double %d", device);
  return 0;
}
#elif defined(DOUBLE_MACA)
EXPORT int N(MallocHost)(void **data, size_t bytes, unsigned flags) { return host_alloc(data, bytes, flags); }
EXPORT int N(FreeHost)(void *data) { return host_free(data); }
#else
EXPORT int N(HostAlloc)(void **data, size_t bytes, unsigned flags) { return host_alloc(data, bytes, flags); }
EXPORT int N(FreeHost)(void *data) { return host_free(data); }
#endif
EXPORT int N(MemcpyAsync)(void *dst, const void *src, size_t bytes, int kind, void *stream) {
  CALLED("MemcpyAsync", "%zu kind %d stream %p on %d", bytes, kind, stream, current);
  if (!stream_known(stream)) return end(kInvalidValue);
  if (bytes > 0) std::memmove(dst, src, bytes);
  return 0;
}
EXPORT int N(StreamCreateWithFlags)(void **stream, unsigned flags) {
  CALLED("StreamCreateWithFlags", "%u on %d", flags, current);
  return make(state.streams, stream);
}
EXPORT int N(StreamDestroy)(void *stream) {
  CALLED("StreamDestroy", "%p", stream);
  return drop(state.streams, stream);
}
EXPORT int N(StreamSynchronize)(void *stream) {
  CALLED("StreamSynchronize", "%p", stream);
  settle();
  return stream_known(stream) ? 0 : end(kInvalidValue);
}
EXPORT int N(StreamQuery)(void *stream) {
  CALLED("StreamQuery", "%p", stream);
  if (held()) return end(kNotReady);
  return stream_known(stream) ? 0 : end(kInvalidValue);
}
EXPORT int N(StreamWaitEvent)(void *stream, void *event, unsigned flags) {
  CALLED("StreamWaitEvent", "%p %p %u on %d", stream, event, flags, current);
  return stream_known(stream) && known(state.events, event) ? 0 : end(kInvalidValue);
}
EXPORT int N(StreamAddCallback)(void *stream, void (*fn)(void *, int, void *), void *arg, unsigned flags) {
  CALLED("StreamAddCallback", "%p %u on %d", stream, flags, current);
  ++state.callbacks;
  std::thread([=] {
    fn(stream, 0, arg);
    --state.callbacks;
  }).detach();
  return 0;
}
EXPORT int N(EventCreateWithFlags)(void **event, unsigned flags) {
  CALLED("EventCreateWithFlags", "%u on %d", flags, current);
  return make(state.events, event);
}
EXPORT int N(EventDestroy)(void *event) {
  CALLED("EventDestroy", "%p", event);
  return drop(state.events, event);
}
EXPORT int N(EventRecord)(void *event, void *stream) {
  CALLED("EventRecord", "%p %p on %d", event, stream, current);
  return stream_known(stream) && known(state.events, event) ? 0 : end(kInvalidValue);
}
EXPORT int N(EventQuery)(void *event) {
  CALLED("EventQuery", "%p", event);
  if (held()) return end(kNotReady);
  return known(state.events, event) ? 0 : end(kInvalidValue);
}
EXPORT int N(PointerGetAttributes)(void *attributes, const void *data) {
  CALLED("PointerGetAttributes", "%p", data);
  const std::lock_guard lock(state.mutex);
  auto after = state.blocks.upper_bound(static_cast<const char *>(data));
  if (after == state.blocks.begin()) return end(kInvalidValue);
  const auto &[begin, block] = *--after;
  if (static_cast<const char *>(data) >= begin + block.size) return end(kInvalidValue);
  static_cast<int *>(attributes)[0] = block.type;
  static_cast<int *>(attributes)[1] = block.device;
  return 0;
}
EXPORT int N(MemGetInfo)(size_t *free, size_t *total) {
  CALLED("MemGetInfo", "on %d", current);
  *free = size_t{6} << 30;
  *total = size_t{8} << 30;
  return 0;
}
EXPORT int N(DeviceGetPCIBusId)(char *text, int length, int device) {
  CALLED("DeviceGetPCIBusId", "%d", device);
  std::snprintf(text, static_cast<size_t>(length), "0000:0%d:00.0", device + 1);
  return 0;
}
EXPORT int N(RuntimeGetVersion)(int *version) {
  CALLED("RuntimeGetVersion", " ");
  *version = control().version != 0 ? control().version : kVersion;
  return 0;
}
EXPORT int N(GetLastError)() {
  const int code = last_error;
  last_error = 0;
  return code;
}
EXPORT const char *N(GetErrorName)(int code) { return code == 2 ? "ErrorMemoryAllocation" : "ErrorOther"; }
EXPORT const char *N(GetErrorString)(int code) { return code == 2 ? "out of memory" : "something else"; }
}
