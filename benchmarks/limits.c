/* What this machine can do at best, without any library: the bounds the other figures are held against.
 *
 *   cc -O3 -march=native limits.c -o limits && ./limits [-b BLOCKS] [-s BYTES] [-A NETNS -B NETNS -H ADDRESS]
 * NAME...
 *
 * NAME: flag_spin flag_futex unix unix_poll tcp tcp_poll (8 bytes, one way: half a round trip), unix_stream
 * tcp_stream tcp_duplex memcpy vm_readv add (BYTES each), add_cached (128 KiB). Prints {"NAME": seconds or
 * null, ...}, the median of BLOCKS blocks; null: refused here. Two processes stand on the first two cores we
 * may use; with -A and -B they stand in those network namespaces, and ADDRESS is one of B's. Of the 8-byte
 * ones 30 BLOCKS are taken. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <poll.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "pair.h"

enum { MESSAGE = 8, CACHED = 128 << 10 };

/* One side, while it measures. */
static struct {
  struct pair *pair;
  int side, fd;
  unsigned turn; /* counts round trips of flags, on both sides alike */
  size_t bytes;
  char *from, *to;
} it;

/* ---- 8 bytes there and back; side 0 begins ------------------------------------------------------- */

static void set_flag(int side, int wake) {
  atomic_store(it.pair->flag[side], it.turn);
  if (wake) syscall(SYS_futex, it.pair->flag[side], FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* answer: what side 1 does before it answers. */
static void flags(long times, int sleep, void (*answer)(void)) {
  for (long i = 0; i < times; ++i) {
    ++it.turn;
    if (it.side == 0) set_flag(1, sleep);
    for (unsigned seen; (seen = atomic_load(it.pair->flag[it.side])) != it.turn;)
      if (sleep) syscall(SYS_futex, it.pair->flag[it.side], FUTEX_WAIT, seen, NULL, NULL, 0);
    if (it.side == 1) {
      if (answer != NULL) answer();
      set_flag(0, sleep);
    }
  }
}

static void flag_spin(long times) { flags(times, 0, NULL); }
static void flag_futex(long times) { flags(times, 1, NULL); }

static void receive(void *data, size_t count, int how) {
  for (size_t got = 0; got < count;) {
    const ssize_t n = recv(it.fd, (char *)data + got, count - got, how);
    if (n == 0 || (n < 0 && errno != EAGAIN)) fail("recv");
    if (n > 0) got += (size_t)n;
  }
}

static void transmit(const void *data, size_t count) {
  for (size_t sent = 0; sent < count;) {
    const ssize_t n = send(it.fd, (const char *)data + sent, count - sent, MSG_NOSIGNAL);
    check(n, "send");
    sent += (size_t)n;
  }
}

static void messages(long times, int how) {
  char message[MESSAGE] = {0};
  for (long i = 0; i < times; ++i) {
    if (it.side == 0) transmit(message, sizeof message);
    receive(message, sizeof message, how);
    if (it.side == 1) transmit(message, sizeof message);
  }
}

static void socket_block(long times) { messages(times, 0); }
static void socket_poll(long times) { messages(times, MSG_DONTWAIT); }

/* ---- `bytes` bytes one way, and one back ---------------------------------------------------------- */

static void stream(long times) {
  char done = 0;
  for (long i = 0; i < times; ++i) {
    if (it.side == 0) transmit(it.from, it.bytes), receive(&done, 1, 0);
    if (it.side == 1) receive(it.to, it.bytes, 0), transmit(&done, 1);
  }
}

/* Both ways at once. */
static void duplex(long times) {
  for (long i = 0; i < times; ++i) {
    for (size_t sent = 0, got = 0; sent < it.bytes || got < it.bytes;) {
      struct pollfd ready = {.fd = it.fd};
      if (got < it.bytes) ready.events |= POLLIN;
      if (sent < it.bytes) ready.events |= POLLOUT;
      check(poll(&ready, 1, -1), "poll");
      ssize_t in = 0, out = 0;
      if (ready.revents & ready.events & POLLIN) in = recv(it.fd, it.to + got, it.bytes - got, MSG_DONTWAIT);
      if (ready.revents & POLLOUT)
        out = send(it.fd, it.from + sent, it.bytes - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (in > 0) got += (size_t)in;
      if (out > 0) sent += (size_t)out;
      if (ready.revents & (POLLERR | POLLHUP | POLLNVAL)) fail("duplex");
    }
  }
}

/* Side 1, the receiver, reads side 0's memory, which lies at the same address. */
static void read_other(void) {
  const struct iovec to = {it.to, it.bytes}, from = {it.from, it.bytes};
  if (process_vm_readv(atomic_load(&it.pair->number), &to, 1, &from, 1, 0) != (ssize_t)it.bytes)
    fail("process_vm_readv");
}

static void vm_readv(long times) {
  if (it.side == 0) atomic_store(&it.pair->number, getpid());
  flags(times, 1, read_other);
}

/* ---- one process alone: the other side ends at once ------------------------------------------------ */

static void copy(long times) {
  for (long i = 0; it.side == 0 && i < times; ++i) memcpy(it.to, it.from, it.bytes);
}

static void add_floats(float *restrict out, const float *restrict in, size_t count) {
  for (size_t i = 0; i < count; ++i) out[i] += in[i];
}

static void add(long times) {
  for (long i = 0; it.side == 0 && i < times; ++i)
    add_floats((float *)it.to, (const float *)it.from, it.bytes / sizeof(float));
}

/* ---- the list -------------------------------------------------------------------------------------- */

struct measure {
  const char *name;
  void (*run)(long times);
  long times;
  enum { NONE, UNIX, TCP } socket;
};

static const struct measure measures[] = {
    {"flag_spin", flag_spin, 1000, NONE}, {"flag_futex", flag_futex, 20, NONE},
    {"unix", socket_block, 20, UNIX},     {"unix_poll", socket_poll, 20, UNIX},
    {"tcp", socket_block, 20, TCP},       {"tcp_poll", socket_poll, 20, TCP},
    {"unix_stream", stream, 1, UNIX},     {"tcp_stream", stream, 1, TCP},
    {"tcp_duplex", duplex, 1, TCP},       {"memcpy", copy, 1, NONE},
    {"vm_readv", vm_readv, 1, NONE},      {"add", add, 1, NONE},
    {"add_cached", add, 100, NONE},
};

struct task {
  const struct measure *measure;
  const struct options *options;
  int sockets[2]; /* a UNIX one for each side */
};

static double run(struct pair *pair, int side, void *argument) {
  const struct task *task = argument;
  const struct measure *m = task->measure;
  const size_t bytes = strcmp(m->name, "add_cached") == 0 ? CACHED : task->options->bytes;
  it.pair = pair, it.side = side, it.bytes = bytes;
  /* vm_readv needs equal addresses: both sides have mapped the same until here. */
  it.from = memset(memory(bytes, MAP_PRIVATE), 1, bytes);
  it.to = memset(memory(bytes, MAP_PRIVATE), 0, bytes);
  if (m->socket == UNIX) it.fd = task->sockets[side];
  if (m->socket == TCP) it.fd = pair_connect(pair, side, task->options->address);
  return median_block(m->run, m->times, task->options->blocks);
}

int main(int argc, char **argv) {
  const struct options options = parse(argc, argv);
  for (int arg = optind; arg < argc; ++arg) {
    struct task task = {.options = &options};
    for (size_t i = 0; i < sizeof measures / sizeof *measures; ++i)
      if (strcmp(measures[i].name, argv[arg]) == 0) task.measure = &measures[i];
    if (task.measure == NULL) return fprintf(stderr, "there is no measure %s\n", argv[arg]), 2;
    check(socketpair(AF_UNIX, SOCK_STREAM, 0, task.sockets), "socketpair");
    const double seconds = on_pair(&options, run, &task);
    const int there_and_back = task.measure->run == flag_spin || task.measure->run == flag_futex ||
                               task.measure->run == socket_block || task.measure->run == socket_poll;
    print_seconds(task.measure->name, there_and_back ? seconds / 2 : seconds, arg == optind);
    close(task.sockets[0]), close(task.sockets[1]);
  }
  return puts("}") < 0;
}
