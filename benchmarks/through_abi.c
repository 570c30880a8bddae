/* dicomm through its C ABI alone, without Python: what the library itself costs.
 *
 *   through_abi [-b BLOCKS] [-s BYTES] [-p SPIN_NS] [-A NETNS -B NETNS -H ADDRESS] NAME...
 *
 * NAME: pingpong (8 bytes, one way), stream (BYTES one way, and 8 bytes back), call (an allreduce of 4 bytes
 * on a communicator of one rank). Places, output and median as in limits.c. */
#define _GNU_SOURCE
#include "rank.h"

/* ---- what a rank measures ------------------------------------------------------------------------- */

static void pingpong(long times) {
  for (long i = 0; i < times; ++i) there_and_back(8, 8);
}

static void stream(long times) {
  for (long i = 0; i < times; ++i) there_and_back(it.bytes, 8);
}

static void call(long times) {
  for (long i = 0; i < times; ++i) operate(DICOMM_ALLREDUCE, DICOMM_FLOAT32, 1);
}

static const struct measure {
  const char *name;
  void (*run)(long times);
  long times;
  int ranks;
} measures[] = {{"pingpong", pingpong, 200, 2}, {"stream", stream, 1, 2}, {"call", call, 500, 1}};

/* ---- where they meet ------------------------------------------------------------------------------- */

struct task {
  const struct measure *measure;
  const struct options *options;
  char url[64]; /* of an empty directory */
};

static double run(struct pair *pair, int side, void *argument) {
  (void)pair;
  const struct task *task = argument;
  const struct measure *m = task->measure;
  if (side >= m->ranks) return 0;
  const char *route_to = task->options->address != NULL ? task->options->address : "127.0.0.1";
  open_rank(m->name, task->url, side, m->ranks, route_to, "", "", task->options->spin_ns,
            task->options->bytes);
  const double seconds = median_block(m->run, m->times, task->options->blocks);
  close_rank();
  return seconds;
}

int main(int argc, char **argv) {
  const struct options options = parse(argc, argv);
  int failed = 0;
  for (int arg = optind; arg < argc; ++arg) {
    struct task task = {.options = &options};
    char directory[] = "/tmp/dicomm-bench-XXXXXX", remove[64];
    for (size_t i = 0; i < sizeof measures / sizeof *measures; ++i)
      if (strcmp(measures[i].name, argv[arg]) == 0) task.measure = &measures[i];
    if (task.measure == NULL) return fprintf(stderr, "there is no measure %s\n", argv[arg]), 2;
    if (mkdtemp(directory) == NULL) fail("mkdtemp");
    snprintf(task.url, sizeof task.url, "file://%s", directory);
    snprintf(remove, sizeof remove, "rm -rf %s", directory);
    const double seconds = on_pair(&options, run, &task);
    print_seconds(task.measure->name, task.measure->run == pingpong ? seconds / 2 : seconds, arg == optind);
    failed |= seconds < 0 || system(remove) != 0;
  }
  puts("}");
  return failed;
}
