/* dicomm through its C ABI alone, without Python: what the library itself costs.
 *
 *   through_abi [-b BLOCKS] [-s BYTES] [-p SPIN_NS] [-A NETNS -B NETNS -H ADDRESS] NAME...
 *
 * NAME: pingpong (8 bytes, one way), stream (BYTES one way, and 8 bytes back), call (an allreduce of 4 bytes
 * on a communicator of one rank). Places, output and median as in limits.c. */
#define _GNU_SOURCE
#include <dicomm/dicomm.h>

#include "pair.h"

static void ok(dicomm_status status) {
  if (status == DICOMM_OK) return;
  dicomm_error error;
  dicomm_last_error(&error);
  fprintf(stderr, "%s: %s\n", dicomm_status_name(status), error.message);
  exit(1);
}

/* ---- one rank, while it measures ------------------------------------------------------------------- */

static struct {
  dicomm_comm *comm;
  int rank;
  char *data;
  size_t bytes;
} it;

static void operate(int opcode, int dtype, size_t count) {
  const dicomm_block block = {.data = it.data, .count = (int64_t)count};
  dicomm_op op = {
      .size = sizeof op, .opcode = opcode, .dtype = dtype, .reduce = DICOMM_SUM, .peer = 1 - it.rank};
  if (opcode != DICOMM_RECV) op.send = &block, op.nsend = 1;
  if (opcode != DICOMM_SEND) op.recv = &block, op.nrecv = 1;
  op.timeout_ns = DICOMM_TIMEOUT_DEFAULT;
  dicomm_request *request;
  ok(dicomm_start(it.comm, &op, &request));
  ok(dicomm_request_wait(request, DICOMM_TIMEOUT_NEVER));
  dicomm_request_free(request);
}

static void there_and_back(size_t there, size_t back) {
  if (it.rank == 0) operate(DICOMM_SEND, DICOMM_UINT8, there), operate(DICOMM_RECV, DICOMM_UINT8, back);
  if (it.rank == 1) operate(DICOMM_RECV, DICOMM_UINT8, there), operate(DICOMM_SEND, DICOMM_UINT8, back);
}

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
  const int64_t half_a_minute = 30000000000;
  if (side >= m->ranks) return 0;
  dicomm_store *store;
  dicomm_context *context;
  const char *address = task->options->address;
  const dicomm_context_options context_options = {.size = sizeof context_options,
                                                  .interface = "",
                                                  .route_to = address != NULL ? address : "127.0.0.1",
                                                  .log_level = 2,
                                                  .spin_ns = task->options->spin_ns};
  const dicomm_comm_options comm_options = {.size = sizeof comm_options,
                                            .name = m->name,
                                            .timeout_ns = half_a_minute,
                                            .init_timeout_ns = half_a_minute,
                                            .algorithms = ""};
  ok(dicomm_store_open(task->url, NULL, &store));
  ok(dicomm_context_create(&context_options, &context));
  ok(dicomm_comm_create(context, store, m->name, side, m->ranks, &comm_options, &it.comm));
  it.rank = side, it.bytes = task->options->bytes;
  it.data = memset(memory(it.bytes, MAP_PRIVATE), 0, it.bytes);
  const double seconds = median_block(m->run, m->times, task->options->blocks);
  dicomm_comm_close(it.comm);
  dicomm_context_close(context);
  dicomm_store_close(store);
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
