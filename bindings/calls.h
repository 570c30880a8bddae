/* C behind the cffi module: one call per operation. A dicomm_op filled in from Python field by field costs
 * more time than the operation itself.
 */
#include "dicomm/dicomm.h"

/* `rare` is NULL for one contiguous buffer a side (nsend, nrecv: its elements, -1 for none); else it holds
 * the blocks, `uneven` and the factor, and send and recv are not looked at. */
static dicomm_status dicomm_py_start(dicomm_comm *comm, const dicomm_op *rare, int32_t opcode, int32_t dtype,
                                     int32_t reduce, int32_t peer, uint64_t tag, int64_t timeout_ns,
                                     void *send, int64_t nsend, void *recv, int64_t nrecv,
                                     dicomm_request **request) {
  dicomm_block blocks[2] = {{send, nsend, NULL}, {recv, nrecv, NULL}};
  dicomm_op op = {sizeof op};
  if (rare != NULL) {
    op = *rare;
  } else {
    if (nsend >= 0) op.send = &blocks[0];
    if (nrecv >= 0) op.recv = &blocks[1];
    op.nsend = nsend >= 0;
    op.nrecv = nrecv >= 0;
  }
  op.opcode = opcode;
  op.dtype = dtype;
  op.reduce = reduce;
  op.peer = peer;
  op.tag = tag;
  op.timeout_ns = timeout_ns;
  *request = NULL;
  return dicomm_start(comm, &op, request);
}
