/* One of two ranks, perhaps on two hosts, that do over a path of dicomm what perftest's programs do bare.
 *
 *   rdma_rank RANK HOST PORT ADDRESS PATHS RDMA echo BYTES TIMES SPIN_NS
 *   rdma_rank RANK HOST PORT ADDRESS PATHS RDMA flow BYTES TIMES SPIN_NS
 *
 * Rank 0 serves the store at HOST:PORT; ADDRESS is one on the network of this rank's card. echo: BYTES there
 * and back, TIMES times, as ib_send_lat does; flow: TIMES messages of BYTES, as many under way as ib_write_bw
 * is told to have, from rank 0 to rank 1. Rank 0 prints the median of half a round trip, or the time of a
 * message, in seconds. */
#define _GNU_SOURCE
#include "rank.h"

enum { UNDER_WAY = 16, MOST_TIMES = 100000 };

static double echo(long times) {
  static double seconds[MOST_TIMES];
  there_and_back(it.bytes, it.bytes); /* connects */
  for (long i = 0; i < times; ++i) {
    const double begun = now();
    there_and_back(it.bytes, it.bytes);
    seconds[i] = (now() - begun) / 2;
  }
  qsort(seconds, (size_t)times, sizeof *seconds, pair_less);
  return seconds[times / 2];
}

static void stream(long times) {
  const int opcode = it.rank == 0 ? DICOMM_SEND : DICOMM_RECV;
  dicomm_request *requests[UNDER_WAY];
  for (long i = 0; i < times + UNDER_WAY; ++i) {
    dicomm_request **slot = &requests[i % UNDER_WAY];
    if (i >= UNDER_WAY) finish(*slot);
    if (i < times) *slot = start(opcode, DICOMM_UINT8, it.bytes);
  }
}

/* The sender is done when the card says that all has arrived, which is what ib_write_bw waits for. */
static double flow(long times) {
  stream(UNDER_WAY); /* connects, and registers memory, which perftest does not count either */
  there_and_back(1, 1);
  const double begun = now();
  stream(times);
  return (now() - begun) / (double)times;
}

int main(int argc, char **argv) {
  if (argc != 11) return fputs("rdma_rank: see the top of rdma_rank.c\n", stderr), 2;
  const int rank = atoi(argv[1]);
  const long times = atol(argv[9]);
  const int echoes = strcmp(argv[7], "echo") == 0;
  if (times < UNDER_WAY || times > MOST_TIMES) return fputs("rdma_rank: TIMES out of range\n", stderr), 2;
  char url[128];
  snprintf(url, sizeof url, "tcp%s://%s:%s", rank == 0 ? "-server" : "", argv[2], argv[3]);
  open_rank("rdma_rank", url, rank, 2, argv[4], argv[5], argv[6], atol(argv[10]),
            strtoull(argv[8], NULL, 10));
  const double seconds = echoes ? echo(times) : flow(times);
  there_and_back(1, 1); /* rank 1 has all it waits for when rank 0 leaves */
  close_rank();
  if (rank == 0) printf("%.9g\n", seconds);
  return 0;
}
