/* A rank of dicomm through its C ABI: what through_abi.c and rdma_rank.c share. One per process. */
#ifndef RANK_H
#define RANK_H

#include <dicomm/dicomm.h>

#include "pair.h"

static inline void ok(dicomm_status status) {
  if (status == DICOMM_OK) return;
  dicomm_error error;
  dicomm_last_error(&error);
  fprintf(stderr, "%s: %s\n", dicomm_status_name(status), error.message);
  exit(1);
}

static struct {
  dicomm_store *store;
  dicomm_context *context;
  dicomm_comm *comm;
  int rank;
  char *data;
  size_t bytes;
} it;

/* route_to: an address of this host's network. paths, rdma: of dicomm_context_options. */
static inline void open_rank(const char *name, const char *url, int rank, int ranks, const char *route_to,
                             const char *paths, const char *rdma, long spin_ns, size_t bytes) {
  const int64_t half_a_minute = 30000000000;
  const dicomm_store_options store = {.size = sizeof store,
                                      .secret = (const uint8_t *)name,
                                      .secret_len = strlen(name),
                                      .timeout_ns = half_a_minute};
  const dicomm_context_options context = {.size = sizeof context,
                                          .interface = "",
                                          .route_to = route_to,
                                          .log_level = 2,
                                          .spin_ns = spin_ns,
                                          .paths = paths,
                                          .rdma = rdma};
  const dicomm_comm_options comm = {.size = sizeof comm,
                                    .name = name,
                                    .timeout_ns = half_a_minute,
                                    .init_timeout_ns = half_a_minute,
                                    .algorithms = ""};
  ok(dicomm_store_open(url, &store, &it.store));
  ok(dicomm_context_create(&context, &it.context));
  ok(dicomm_comm_create(it.context, it.store, name, rank, ranks, &comm, &it.comm));
  it.rank = rank, it.bytes = bytes;
  it.data = memset(memory(bytes, MAP_PRIVATE), 0, bytes);
}

static inline void close_rank(void) {
  dicomm_comm_close(it.comm);
  dicomm_context_close(it.context);
  dicomm_store_close(it.store);
}

/* With the other one of two ranks, if it is not a collective. */
static inline dicomm_request *start(int opcode, int dtype, size_t count) {
  const dicomm_block block = {.data = it.data, .count = (int64_t)count};
  dicomm_op op = {
      .size = sizeof op, .opcode = opcode, .dtype = dtype, .reduce = DICOMM_SUM, .peer = 1 - it.rank};
  if (opcode != DICOMM_RECV) op.send = &block, op.nsend = 1;
  if (opcode != DICOMM_SEND) op.recv = &block, op.nrecv = 1;
  op.timeout_ns = DICOMM_TIMEOUT_DEFAULT;
  dicomm_request *request;
  ok(dicomm_start(it.comm, &op, &request));
  return request;
}

static inline void finish(dicomm_request *request) {
  ok(dicomm_request_wait(request, DICOMM_TIMEOUT_NEVER));
  dicomm_request_free(request);
}

static inline void operate(int opcode, int dtype, size_t count) { finish(start(opcode, dtype, count)); }

static inline void there_and_back(size_t there, size_t back) {
  if (it.rank == 0) operate(DICOMM_SEND, DICOMM_UINT8, there), operate(DICOMM_RECV, DICOMM_UINT8, back);
  if (it.rank == 1) operate(DICOMM_RECV, DICOMM_UINT8, there), operate(DICOMM_SEND, DICOMM_UINT8, back);
}

#endif
