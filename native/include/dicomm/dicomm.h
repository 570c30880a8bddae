/* dicomm.h - the whole public C ABI of libdicomm.
 *
 * Rules that hold for every function here:
 *  - A `dicomm_status` other than DICOMM_OK means the call had no effect; dicomm_last_error() then tells
 *    the calling thread what happened. Argument errors are found before anything is sent.
 *  - Objects are opaque. `*_create` / `*_open` return an object the caller owns; `*_close` / `*_free`
 *    end it and accept NULL. Objects may be used from any thread; closing one while another thread
 *    is inside a call on it is the caller's mistake (abort first).
 *  - Strings are UTF-8. `char *buf, size_t cap` functions write at most cap bytes including the final
 *    NUL and return the length the full text needs without it, as snprintf does.
 *  - Option and argument structs start with their size, so that a newer library accepts an older caller.
 *  - Time-outs are nanoseconds; see DICOMM_TIMEOUT_*.
 *  - Nothing here reads the environment, installs a signal handler or lets a C++ exception out.
 *
 * cffi reads this very file (after the C preprocessor, with DICOMM_CDEF defined).
 */
#ifndef DICOMM_H
#define DICOMM_H

#ifndef DICOMM_CDEF
#include <stddef.h>
#include <stdint.h>
#endif

#if defined(DICOMM_CDEF) || !defined(__GNUC__)
#define DICOMM_API
#else
#define DICOMM_API __attribute__((visibility("default")))
#endif

#if defined(__cplusplus) && !defined(DICOMM_CDEF)
extern "C" {
#endif

enum { DICOMM_ABI_VERSION = 2 };

/* ---- status -------------------------------------------------------------------------------------
 * X(NAME, value, group, text). Grouped by what is lost: nothing (the caller's mistake), this request,
 * this peer, this communicator, this process. The Python classes and docs/reference/errors.md are made
 * from this list through dicomm_status_name/group/text. */
#define DICOMM_STATUS_LIST(X)                                                                \
  X(OK, 0, "none", "no error")                                                               \
  X(IN_PROGRESS, 1, "none", "the operation has not completed yet")                           \
  X(INTERRUPTED, 2, "none", "a signal arrived while waiting; wait again")                    \
  X(INVALID_ARGUMENT, 10, "caller", "an argument is wrong; nothing was sent")                \
  X(NOT_SUPPORTED, 11, "caller", "this combination is not supported; nothing was sent")      \
  X(MISMATCH, 12, "caller", "ranks called different operations or with different arguments") \
  X(TRUNCATED, 20, "request", "the message is longer than the receive buffer")               \
  X(CANCELED, 21, "request", "the request was canceled before it completed")                 \
  X(TIMED_OUT, 22, "request", "the operation did not complete in time")                      \
  X(CONNECT_FAILED, 30, "peer", "no connection to the peer could be made")                   \
  X(PEER_LOST, 31, "peer", "the peer's process ended or closed its connection")              \
  X(PROTOCOL, 32, "peer", "the peer sent something that is not dicomm's protocol")           \
  X(ABORTED, 40, "communicator", "the communicator was aborted")                             \
  X(CCL_FAILED, 41, "communicator", "a vendor's collective library failed")                  \
  X(DEVICE_FAILED, 42, "communicator", "a device operation failed")                          \
  X(NO_MEMORY, 50, "process", "memory could not be allocated")                               \
  X(SYSTEM, 51, "process", "a system call failed")                                           \
  X(INTERNAL, 52, "process", "a bug in dicomm; please report it")

#define DICOMM_STATUS_ENUM(name, value, group, text) DICOMM_##name = value,
typedef enum dicomm_status { DICOMM_STATUS_LIST(DICOMM_STATUS_ENUM) } dicomm_status;

/* Everything known about a failure. Fields that do not apply are -1, 0 or "". */
typedef struct dicomm_error {
  int32_t status;          /* dicomm_status */
  int32_t rank;            /* this rank in the communicator */
  int32_t peer;            /* the rank the failure is about */
  int32_t foreign_code;    /* errno, ncclResult_t, ibv_wc_status ... kept, never cast */
  int64_t seq;             /* the communicator's sequence number of the operation */
  uint64_t bytes;          /* size of the operation */
  int64_t waited_ns;       /* time from start to failure */
  char foreign_domain[16]; /* "errno", "nccl", "verbs" ... */
  char op[24];
  char path[16]; /* "tcp", "loopback" ... */
  char peer_host[64];
  char message[2048]; /* one complete sentence with all of the above and what to do */
} dicomm_error;

DICOMM_API uint32_t dicomm_abi_version(void);
/* JSON object: version, abi, compiler, kernels (the instruction set that reductions use on this processor),
   transports, algorithms (what `dicomm info` prints). */
DICOMM_API size_t dicomm_build_info(char *buf, size_t cap);
/* NULL for a value that is not in the list. */
DICOMM_API const char *dicomm_status_name(int32_t status);
DICOMM_API const char *dicomm_status_group(int32_t status);
DICOMM_API const char *dicomm_status_text(int32_t status);
/* The failure of the last call on this thread that did not return DICOMM_OK. */
DICOMM_API void dicomm_last_error(dicomm_error *out);

/* ---- types --------------------------------------------------------------------------------------
 * X(NAME, value, size in bytes) */
#define DICOMM_DTYPE_LIST(X) \
  X(UINT8, 0, 1)             \
  X(INT8, 1, 1)              \
  X(UINT16, 2, 2)            \
  X(INT16, 3, 2)             \
  X(UINT32, 4, 4)            \
  X(INT32, 5, 4)             \
  X(UINT64, 6, 8)            \
  X(INT64, 7, 8)             \
  X(BOOL, 8, 1)              \
  X(FLOAT8_E4M3FN, 9, 1)     \
  X(FLOAT8_E5M2, 10, 1)      \
  X(FLOAT16, 11, 2)          \
  X(BFLOAT16, 12, 2)         \
  X(FLOAT32, 13, 4)          \
  X(FLOAT64, 14, 8)          \
  X(COMPLEX64, 15, 8)        \
  X(COMPLEX128, 16, 16)
#define DICOMM_DTYPE_ENUM(name, value, size) DICOMM_##name = value,
typedef enum dicomm_dtype { DICOMM_DTYPE_LIST(DICOMM_DTYPE_ENUM) } dicomm_dtype;

/* min and max propagate NaN; integers wrap; bool is logical; 8- and 16-bit floats accumulate in
 * float32 and round once; avg divides once by the communicator's size (integers truncate toward
 * zero); premul_sum multiplies every input by dicomm_op.factor first. */
#define DICOMM_REDUCE_LIST(X) \
  X(SUM, 0)                   \
  X(PROD, 1)                  \
  X(MIN, 2)                   \
  X(MAX, 3)                   \
  X(AVG, 4)                   \
  X(BAND, 5)                  \
  X(BOR, 6)                   \
  X(BXOR, 7)                  \
  X(PREMUL_SUM, 8)
#define DICOMM_REDUCE_ENUM(name, value) DICOMM_##name = value,
typedef enum dicomm_reduce { DICOMM_REDUCE_LIST(DICOMM_REDUCE_ENUM) } dicomm_reduce;

#define DICOMM_OPCODE_LIST(X) \
  X(SEND, 0)                  \
  X(RECV, 1)                  \
  X(BARRIER, 2)               \
  X(BROADCAST, 3)             \
  X(ALLREDUCE, 4)             \
  X(REDUCE, 5)                \
  X(ALLGATHER, 6)             \
  X(REDUCE_SCATTER, 7)        \
  X(ALLTOALL, 8)              \
  X(GATHER, 9)                \
  X(SCATTER, 10)              \
  X(SERVE, 11)
#define DICOMM_OPCODE_ENUM(name, value) DICOMM_##name = value,
typedef enum dicomm_opcode { DICOMM_OPCODE_LIST(DICOMM_OPCODE_ENUM) } dicomm_opcode;

/* 0 for a value that is not in the list. */
DICOMM_API size_t dicomm_dtype_size(int32_t dtype);

enum {
  DICOMM_ANY_SOURCE = -1,
  DICOMM_TIMEOUT_DEFAULT = -1, /* the communicator's */
  DICOMM_TIMEOUT_NEVER = -2
};

/* ---- store: rendezvous of processes that do not know each other yet ------------------------------
 * A key-value store shared by all ranks. Calls block the calling thread only. */
typedef struct dicomm_store dicomm_store;

/* A store somebody else implements (torch's, MPI's). Called only on the thread that calls
 * dicomm_comm_create. get: blocks until the key exists or timeout_ns passed, copies at most cap bytes and
 * puts the full length in *len (the caller retries with more room). Return a dicomm_status. */
typedef struct dicomm_store_vtable {
  size_t size;
  int32_t (*set)(void *self, const char *key, const uint8_t *value, size_t len);
  int32_t (*get)(void *self, const char *key, uint8_t *value, size_t cap, size_t *len, int64_t timeout_ns);
  int32_t (*check)(void *self, const char *key, int32_t *exists); /* does not block for the key */
} dicomm_store_vtable;

typedef struct dicomm_store_options {
  size_t size;
  const uint8_t *secret; /* proves membership to a tcp store; both sides must give the same bytes */
  size_t secret_len;
  int64_t timeout_ns; /* for the connection to a tcp store whose server is not up yet */
} dicomm_store_options;

/* url: "tcp://HOST:PORT" a client; "tcp-server://HOST:PORT" serves from a thread of its own on HOST's
 * address (PORT 0: chosen) and is a client too; "file:///PATH" a directory on a shared file system. */
DICOMM_API dicomm_status dicomm_store_open(const char *url, const dicomm_store_options *options,
                                           dicomm_store **out);
DICOMM_API dicomm_status dicomm_store_wrap(const dicomm_store_vtable *vtable, void *self, dicomm_store **out);
/* The url a client of this store opens (with the chosen port). */
DICOMM_API size_t dicomm_store_url(const dicomm_store *store, char *buf, size_t cap);
DICOMM_API dicomm_status dicomm_store_set(dicomm_store *store, const char *key, const uint8_t *value,
                                          size_t len);
/* TIMED_OUT when the key does not appear in time. *len is the full length; call again when > cap. */
DICOMM_API dicomm_status dicomm_store_get(dicomm_store *store, const char *key, uint8_t *value, size_t cap,
                                          size_t *len, int64_t timeout_ns);
/* Adds delta to the decimal number under key (absent: 0), atomically; not for wrapped stores. */
DICOMM_API dicomm_status dicomm_store_add(dicomm_store *store, const char *key, int64_t delta,
                                          int64_t *result);
DICOMM_API void dicomm_store_close(dicomm_store *store);

/* ---- context: this process's listener, connections, memory and progress thread ------------------- */
typedef struct dicomm_context dicomm_context;

/* A chip that exists on any machine: host memory stands for its memory, and a library that serves only chips
 * of its brand for its vendor's. Every buffer of a process with a simulated chip counts as device memory. */
typedef struct dicomm_simulation {
  size_t size;
  double tflops;          /* what it computes, 1e12 operations per second; planners read it */
  uint64_t memory_bytes;  /* more is not allocated; 0: no limit */
  double copy_gbs;        /* copies between host and chip, 1e9 bytes per second; 0: as fast as it goes */
  double copy_latency_us; /* each of them takes that much longer */
  double link_gbs;        /* to other chips of its brand; 0: as fast as it goes */
  uint64_t dtypes;        /* bit 1 << DICOMM_<dtype>: its library knows the dtype */
  const char *lacks;      /* "" or what its library cannot do: "avg,send_recv" */
} dicomm_simulation;

/* What this process's rank computes on. */
typedef struct dicomm_chip {
  size_t size;
  const char *vendor; /* "cpu", "nvidia", "amd", "ascend", "mthreads", "iluvatar", "metax", "hygon"; a
                         simulation's brand */
  int32_t index;      /* as the vendor counts in this process */
  const char *island; /* "": ranks of one vendor and library form an island; else ranks with equal words do */
  const char *role;   /* "worker", or "reducer": see dicomm_op */
  const dicomm_simulation *simulation; /* NULL: the chip is real */
  const char *library; /* "": the vendor's, none for "cpu"; "mpi": ranks on the host's processors let MPI do
                          the inside of their island */
} dicomm_chip;

typedef struct dicomm_context_options {
  size_t size;
  const char *interface; /* "" chosen; else an interface name or a numeric address to listen on */
  const char *route_to;  /* "" or HOST: listen on the interface that reaches it (used when interface is "") */
  const uint8_t *secret; /* "" : every context draws its own key and publishes it in the store */
  size_t secret_len;
  uint32_t sockets_per_peer;    /* 0: default */
  uint32_t log_level;           /* 0 silent, 1 error, 2 warning, 3 info, 4 debug */
  uint64_t eager_bytes;         /* longer messages use the rendezvous protocol; 0: default */
  int64_t spin_ns;              /* how long a wait polls before it sleeps; -1: default */
  int64_t handshake_timeout_ns; /* a connection not authenticated by then is dropped; 0: default */
  const char *paths;            /* "" all, else those to use, best first: "rdma-direct>tcp", "tcp" */
  const dicomm_chip *chip;      /* NULL: the host's processors */
  const char *rdma;             /* "" or settings of the RDMA paths: "devices=mlx5_0:1, timeout=20" */
} dicomm_context_options;

DICOMM_API dicomm_status dicomm_context_create(const dicomm_context_options *options, dicomm_context **out);
/* JSON object: id, address, sockets_per_peer, eager_bytes, counters (connections, strangers
 * dropped, bytes and messages) under "transports"; chip: null for the host's processors, else the bytes
 * copied from and to the chip's memory, bytes_to_host and bytes_to_chip. */
DICOMM_API size_t dicomm_context_info(dicomm_context *context, char *buf, size_t cap);
/* In a forked child, once, before anything else: drops the child's copies of the sockets without a
 * word to any peer. The context can then only be closed. */
DICOMM_API void dicomm_context_after_fork(dicomm_context *context);
/* Closes the communicators still open (their requests fail with ABORTED), says goodbye to the peers and joins
 * the thread. Returns within about a second even when peers are gone. */
DICOMM_API void dicomm_context_close(dicomm_context *context);

/* ---- communicator -------------------------------------------------------------------------------- */
typedef struct dicomm_comm dicomm_comm;

typedef struct dicomm_comm_options {
  size_t size;
  const char *name;        /* for messages; "" is fine */
  int64_t timeout_ns;      /* default time-out of operations; DEFAULT: 30 min */
  int64_t init_timeout_ns; /* to find all ranks; DEFAULT: timeout_ns */
  const char *algorithms;  /* "" or rules that come before the built-in ones: "allreduce:ring,barrier:tree" */
  /* 0 or BFLOAT16, FLOAT16, FLOAT8_E4M3FN, FLOAT8_E5M2: sums of float32 cross between hosts and islands so,
   * where algorithms on two levels reduce them. What rounding loses of a buffer is added to it the next time.
   */
  int32_t wire_dtype;
} dicomm_comm_options;

/* Collective over `size` ranks that share `store`; `prefix` must be new to the store. Blocks until all
 * ranks are known; TIMED_OUT names the missing ones. Ranks that do not go together (other versions, an island
 * of several vendors, one chip twice in an island) are refused on all of them. */
DICOMM_API dicomm_status dicomm_comm_create(dicomm_context *context, dicomm_store *store, const char *prefix,
                                            int32_t rank, int32_t size, const dicomm_comm_options *options,
                                            dicomm_comm **out);
/* Collective: ranks of equal color form a new communicator, ordered by (key, rank); color < 0: none (*out is
 * NULL). Blocks. options may be NULL: the parent's. */
DICOMM_API dicomm_status dicomm_comm_split(dicomm_comm *comm, int32_t color, int32_t key,
                                           const dicomm_comm_options *options, dicomm_comm **out);
/* JSON object: name, id, rank, size, seq, timeout_ns, hosts (names), host_of_rank (numbers; ranks of equal
 * number share a machine), failed (null or message), peers: path, messages and bytes each way, per rank there
 * is a connection to; ccl: null where the rank is in no group of a vendor's library, else the library, calls
 * made and the bytes of the rank's larger buffer in each; topology: "ranks", what each published of its host,
 * network cards and chip, with the numbers of its host and island, both counted in order of first rank. */
DICOMM_API size_t dicomm_comm_info(dicomm_comm *comm, char *buf, size_t cap);
DICOMM_API void dicomm_comm_set_timeout(dicomm_comm *comm, int64_t timeout_ns);
/* Fails every pending and later operation on all ranks with ABORTED; the first reason wins. Does not block.
 * Callable from any thread at any time before close. */
DICOMM_API void dicomm_comm_abort(dicomm_comm *comm, const char *reason);
/* Local. Pending operations are given the communicator's time-out to finish, then fail. Peers learn that this
 * rank left. */
DICOMM_API void dicomm_comm_close(dicomm_comm *comm);

/* ---- operations ----------------------------------------------------------------------------------
 * Buffers are lists of blocks. Where an operation speaks of one buffer the list has one block. Where it
 * speaks of one block per rank (alltoall both sides, allgather recv, gather recv, scatter send,
 * reduce_scatter send) the list has `size` blocks, whose counts may differ and be zero, or one block that is
 * cut into `size` equal parts. Blocks may lie anywhere, also in one another's place: operations behave as if
 * all input were read before any output is written. Memory must stay valid until completion.
 *
 * In a communicator some of whose ranks are reducers (dicomm_chip.role), allreduce and reduce combine the
 * workers' buffers; avg divides by the number of workers, root is a worker. A reducer starts them too, with a
 * send block whose data is NULL and whose count is the workers', and gives no factor. In all other operations
 * it is a rank like any other.
 *
 * serve, on a reducer only and without any other field but size: takes part in every allreduce, reduce and
 * barrier that the workers start, and completes when all of them have closed the communicator. It has no
 * time-out. Meanwhile the rank starts nothing else; another collective of the workers' is a MISMATCH. */
typedef struct dicomm_layout {
  int32_t ndim;
  const int64_t *shape;
  const int64_t *strides; /* in bytes; 0 and negative are allowed for input, overlapping output is not */
} dicomm_layout;

typedef struct dicomm_block {
  void *data;
  int64_t count;               /* elements */
  const dicomm_layout *layout; /* NULL: contiguous; copied at the call */
} dicomm_block;

typedef struct dicomm_op {
  size_t size;
  int32_t opcode;
  int32_t dtype;
  int32_t reduce;           /* allreduce, reduce, reduce_scatter */
  int32_t peer;             /* send: destination; recv: source or ANY_SOURCE; rooted collectives: root */
  uint64_t tag;             /* send, recv */
  const dicomm_block *send; /* input; NULL where the rank gives none */
  const dicomm_block *recv; /* output; NULL where the rank gets none. broadcast: the buffer on every rank */
  int32_t nsend;
  int32_t nrecv;
  int32_t uneven; /* gather, scatter: 1 on every rank when the ranks' counts may differ, which only the root
                     sees */
  double factor;  /* premul_sum, one number */
  const void *factor_data; /* premul_sum, or NULL: one element of dtype, read at the call */
  int64_t timeout_ns;      /* from the start of the operation; DICOMM_TIMEOUT_DEFAULT, _NEVER or > 0 */
  void *stream; /* device buffers: the vendor's stream behind whose work the operation starts; NULL: the
                   vendor's default stream */
} dicomm_op;

typedef struct dicomm_request dicomm_request;

/* Starts an operation. The caller owns *request and frees it; freeing does not cancel. Collectives must be
 * started in the same order on every rank of a communicator. */
DICOMM_API dicomm_status dicomm_start(dicomm_comm *comm, const dicomm_op *op, dicomm_request **request);

/* Waits for completion and returns the operation's status; IN_PROGRESS when `timeout_ns` (NEVER or >= 0)
 * passed first, the operation goes on; INTERRUPTED when a signal handler ran on this thread. */
DICOMM_API dicomm_status dicomm_request_wait(dicomm_request *request, int64_t timeout_ns);
/* *index: a completed request, the lowest; its status is not returned, ask for it with request_wait. */
DICOMM_API dicomm_status dicomm_request_wait_any(dicomm_request *const *requests, size_t n,
                                                 int64_t timeout_ns, size_t *index);
/* The status, or IN_PROGRESS. Makes progress. */
DICOMM_API dicomm_status dicomm_request_test(dicomm_request *request);
/* fn(arg, status) runs once, on the thread that completes the request or at once when it has completed. It
 * must not block nor call dicomm, except dicomm_request_free. At most one per request. */
DICOMM_API dicomm_status dicomm_request_notify(dicomm_request *request, void (*fn)(void *arg, int32_t status),
                                               void *arg);
/* A receive that has not matched, or a send that has not left, ends with CANCELED; else nothing happens.
 * Collectives cannot be canceled: NOT_SUPPORTED. */
DICOMM_API dicomm_status dicomm_request_cancel(dicomm_request *request);

typedef struct dicomm_request_info {
  size_t size;
  int32_t opcode;
  int32_t source; /* of a completed receive */
  uint64_t bytes; /* received, or the size of the operation */
  int64_t seq;    /* collectives; -1 for send and recv */
} dicomm_request_info;
DICOMM_API void dicomm_request_get_info(dicomm_request *request, dicomm_request_info *out);
DICOMM_API void dicomm_request_get_error(dicomm_request *request, dicomm_error *out);
DICOMM_API void dicomm_request_free(dicomm_request *request);

/* ---- tools ----------------------------------------------------------------------------------------- */
/* The machine a prediction is about; 0 means the library's default, which the answer prints. */
typedef struct dicomm_machine {
  size_t size;
  double local_latency_us;    /* inside a host, from a message's leaving to its arrival */
  double latency_us;          /* between hosts */
  double overhead_us;         /* that a message costs its sender and its receiver each */
  double local_bandwidth_gbs; /* 1e9 bytes per second out of or into a rank, inside a host */
  double bandwidth_gbs;       /* the same, between hosts */
  double nic_gbps;            /* 1e9 bits per second out of or into a host */
  double copy_gbs;            /* copies within a rank */
  double reduce_gbs;          /* reductions, bytes of the result */
  uint64_t eager_bytes;       /* longer messages wait for the receiver's answer */
} dicomm_machine;

typedef struct dicomm_question {
  size_t size;
  int32_t opcode; /* < 0: the whole table of rules, and nothing else counts */
  int32_t dtype;
  int64_t count; /* elements of the operation's largest buffer */
  int32_t rank;  /* whose steps */
  int32_t ranks;
  const char *algorithms;        /* as in dicomm_comm_options */
  const int32_t *hosts;          /* [ranks]: equal numbers share a host; NULL: one host for all */
  const dicomm_machine *machine; /* NULL: the steps; else the time on this machine, by a model */
  /* [ranks]: equal numbers share an island, whose library is taken to know every operation, and their buffers
   * are on chips; -1: the host's processors. NULL: no chips. Not together with machine: the model knows no
   * chips. */
  const int32_t *islands;
  int32_t reduce;     /* allreduce, reduce, reduce_scatter */
  int32_t wire_dtype; /* as in dicomm_comm_options */
  /* [ranks]: 1 where the rank is a reducer, else 0.
   * NULL: none is. */
  const int32_t *reducers;
} dicomm_question;

/* Why: the rule that wins, and the schedule's steps on one rank or its predicted time on all, as text. A
 * question that makes no sense is answered by the sentence that dicomm_last_error has. */
DICOMM_API size_t dicomm_explain(const dicomm_question *question, char *buf, size_t cap);
/* out[i] = inputs[0][i] op inputs[1][i] op ... over n contiguous arrays in order, as the collectives do it.
 */
DICOMM_API dicomm_status dicomm_reduce_local(const void *const *inputs, size_t n, void *out, int64_t count,
                                             int32_t dtype, int32_t reduce, double factor);

#if defined(__cplusplus) && !defined(DICOMM_CDEF)
}
#endif
#endif
