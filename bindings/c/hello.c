/* The C ABI in one page: two processes meet over a directory, add their vectors and check the sum.
 *
 *   cc hello.c -I PREFIX/include -L PREFIX/lib -ldicomm -Wl,-rpath,PREFIX/lib -o hello && ./hello
 */
#define _GNU_SOURCE
#include <dicomm/dicomm.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 2, COUNT = 1000 };

static void check(dicomm_status status) {
  if (status == DICOMM_OK) return;
  dicomm_error error;
  dicomm_last_error(&error);
  fprintf(stderr, "%s: %s\n", dicomm_status_name(status), error.message);
  exit(1);
}

static void run(const char *url, int rank) {
  const int64_t ten_seconds = 10000000000;
  dicomm_store *store;
  dicomm_context *context;
  dicomm_comm *comm;
  dicomm_request *request;
  dicomm_context_options context_options = {
      .size = sizeof context_options, .interface = "", .route_to = "", .spin_ns = -1};
  dicomm_comm_options comm_options = {.size = sizeof comm_options,
                                      .name = "hello",
                                      .timeout_ns = ten_seconds,
                                      .init_timeout_ns = ten_seconds,
                                      .algorithms = ""};
  check(dicomm_store_open(url, NULL, &store));
  check(dicomm_context_create(&context_options, &context));
  check(dicomm_comm_create(context, store, "hello", rank, SIZE, &comm_options, &comm));

  float data[COUNT];
  for (int i = 0; i < COUNT; ++i) data[i] = (float)(i + rank);
  dicomm_block block = {.data = data, .count = COUNT};
  dicomm_op op = {
      .size = sizeof op, .opcode = DICOMM_ALLREDUCE, .dtype = DICOMM_FLOAT32, .reduce = DICOMM_SUM};
  op.send = op.recv = &block; /* in place */
  op.nsend = op.nrecv = 1;
  op.timeout_ns = DICOMM_TIMEOUT_DEFAULT;
  check(dicomm_start(comm, &op, &request));
  check(dicomm_request_wait(request, DICOMM_TIMEOUT_NEVER));
  dicomm_request_free(request);

  int wrong = 0;
  for (int i = 0; i < COUNT; ++i) wrong += data[i] != (float)(SIZE * i + SIZE * (SIZE - 1) / 2);
  printf("rank %d of %d: %d of %d elements right\n", rank, SIZE, COUNT - wrong, COUNT);
  fflush(stdout);
  dicomm_comm_close(comm);
  dicomm_context_close(context);
  dicomm_store_close(store);
  if (wrong != 0) exit(1);
}

int main(void) {
  char directory[] = "/tmp/dicomm-hello-XXXXXX";
  char text[64];
  if (mkdtemp(directory) == NULL) return perror("mkdtemp"), 1;
  snprintf(text, sizeof text, "file://%s", directory);
  for (int rank = 0; rank < SIZE; ++rank) {
    const pid_t child = fork();
    if (child < 0) return perror("fork"), 1;
    if (child == 0) {
      run(text, rank);
      return 0;
    }
  }
  int failed = 0;
  for (int status; wait(&status) > 0;) failed |= status != 0;
  snprintf(text, sizeof text, "rm -rf '%s'", directory);
  return system(text) != 0 || failed;
}
