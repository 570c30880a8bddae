/* Two processes on two cores, perhaps in two network namespaces: what limits.c and through_abi.c share. */
#ifndef PAIR_H
#define PAIR_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_BLOCKS = 300, SHORT_BLOCKS = 30 };

/* The options both programs take. */
struct options {
  int blocks;
  size_t bytes;
  const char *netns[2]; /* of each side; NULL: the caller's */
  const char *address;  /* one of side 1's */
  long spin_ns;         /* through_abi.c only: how long dicomm polls; -1: its default */
};

struct pair {
  atomic_uint flag[2][32]; /* [side][0] is what that side waits for; a cache line each */
  atomic_int number;       /* side 1's port, or side 0's pid, for the other */
  double seconds;          /* side 0's result */
};

static _Noreturn inline void fail(const char *what) {
  perror(what);
  exit(1);
}

static inline void check(long result, const char *what) {
  if (result < 0) fail(what);
}

static inline double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int pair_less(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Seconds of one of `times` operations that `run` does, in the median block. Where a block has many they are
 * short ones, and there are SHORT_BLOCKS times as many blocks: one of a fraction of a millisecond often
 * escapes the other processes of a busy machine, a long one never does. Both sides of a pair must run as
 * many. */
static inline double median_block(void (*run)(long times), long times, int blocks) {
  double seconds[MOST_BLOCKS * SHORT_BLOCKS];
  const int count = times > 1 ? blocks * SHORT_BLOCKS : blocks;
  run(times); /* warms up */
  for (int block = 0; block < count; ++block) {
    const double start = now();
    run(times);
    seconds[block] = (now() - start) / (double)times;
  }
  qsort(seconds, (size_t)count, sizeof *seconds, pair_less);
  return count % 2 ? seconds[count / 2] : (seconds[count / 2 - 1] + seconds[count / 2]) / 2;
}

/* Huge pages where they may be had, as numpy asks for them too. flags: MAP_PRIVATE or MAP_SHARED. */
static inline void *memory(size_t bytes, int flags) {
  void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) fail("mmap");
  if (flags == MAP_PRIVATE) madvise(start, bytes, MADV_HUGEPAGE);
  return start;
}

/* To the side-th of the cores we may use; nowhere if there is but one. */
static inline void pin(int side) {
  cpu_set_t allowed, one;
  check(sched_getaffinity(0, sizeof allowed, &allowed), "sched_getaffinity");
  CPU_ZERO(&one);
  for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed) && seen++ == side) CPU_SET(cpu, &one);
  if (CPU_COUNT(&allowed) > 1) check(sched_setaffinity(0, sizeof one, &one), "sched_setaffinity");
}

static inline void enter_netns(const char *name) {
  char path[256];
  snprintf(path, sizeof path, "/run/netns/%s", name);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) fail(path);
  close(fd);
}

/* A connected TCP socket of this side. */
static inline int pair_connect(struct pair *pair, int side, const char *address) {
  struct sockaddr_in at = {.sin_family = AF_INET};
  socklen_t length = sizeof at;
  const int yes = 1, first = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int fd = first;
  if (inet_pton(AF_INET, address != NULL ? address : "127.0.0.1", &at.sin_addr) != 1)
    fail("not an IPv4 address");
  if (side == 1) {
    check(bind(first, (struct sockaddr *)&at, sizeof at), "bind");
    check(listen(first, 1), "listen");
    check(getsockname(first, (struct sockaddr *)&at, &length), "getsockname");
    atomic_store(&pair->number, ntohs(at.sin_port));
    check(fd = accept(first, NULL, NULL), "accept");
    close(first);
  } else {
    while (atomic_load(&pair->number) == 0) usleep(100);
    at.sin_port = htons((uint16_t)atomic_load(&pair->number));
    check(connect(first, (struct sockaddr *)&at, sizeof at), "connect");
  }
  check(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes), "TCP_NODELAY");
  return fd;
}

/* Runs body on both sides; side 0's seconds, or -1 when a side failed (it has said why). */
static inline double on_pair(const struct options *options, double (*body)(struct pair *, int side, void *),
                             void *argument) {
  struct pair *pair = memory(sizeof *pair, MAP_SHARED);
  pid_t sides[2];
  int failed = 0, status;
  fflush(NULL);
  for (int side = 1; side >= 0; --side) {
    check(sides[side] = fork(), "fork");
    if (sides[side] != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY); /* so that the other side may read our memory */
    pin(side);
    if (options->netns[side] != NULL) enter_netns(options->netns[side]);
    const double seconds = body(pair, side, argument);
    if (side == 0) pair->seconds = seconds;
    _exit(0);
  }
  for (int ended = 0; ended < 2; ++ended) {
    const pid_t pid = wait(&status);
    if (status != 0 && !failed++) kill(pid == sides[0] ? sides[1] : sides[0], SIGKILL);
  }
  const double seconds = failed ? -1 : pair->seconds;
  munmap(pair, sizeof *pair);
  return seconds;
}

/* Leaves what follows the options from optind on. */
static inline struct options parse(int argc, char **argv) {
  struct options options = {.blocks = 9, .bytes = 64 << 20, .spin_ns = -1};
  for (int letter; (letter = getopt(argc, argv, "b:s:A:B:H:p:")) != -1;) {
    if (letter == 'b') options.blocks = atoi(optarg);
    if (letter == 's') options.bytes = strtoull(optarg, NULL, 10);
    if (letter == 'A') options.netns[0] = optarg;
    if (letter == 'B') options.netns[1] = optarg;
    if (letter == 'H') options.address = optarg;
    if (letter == 'p') options.spin_ns = atol(optarg);
    if (letter == '?') exit(2);
  }
  if (options.blocks < 1 || options.blocks > MOST_BLOCKS || options.bytes < 8) fail("-b or -s out of range");
  return options;
}

static inline void print_seconds(const char *name, double seconds, int first) {
  printf(seconds < 0 ? "%s\"%s\": null" : "%s\"%s\": %.4g", first ? "{" : ", ", name, seconds);
}

#endif
