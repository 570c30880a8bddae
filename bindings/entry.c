/* dicomm._entry: blocking operations on plain buffers, from Python objects to their end in one call. Taking
 * the arguments apart in Python costs several times what a small operation does.
 *
 * Whatever is not plain is left to the general way (dicomm/starting.py), which also says what is wrong with
 * it. */
#include <Python.h>

#include <string.h>

#include "dicomm/dicomm.h"

/* Part of the stable ABI from Python 3.11 on, and no different in 3.10, whose limited headers leave it out.
 */
#if Py_LIMITED_API < 0x030B0000
typedef struct {
  void *buf;
  PyObject *obj;
  Py_ssize_t len, itemsize;
  int readonly, ndim;
  char *format;
  Py_ssize_t *shape, *strides, *suboffsets;
  void *internal;
} Py_buffer;
PyAPI_FUNC(int) PyObject_GetBuffer(PyObject *object, Py_buffer *view, int flags);
PyAPI_FUNC(void) PyBuffer_Release(Py_buffer *view);
#define PyBUF_WRITABLE 0x0001
#define PyBUF_FORMAT 0x0004
#define PyBUF_C_CONTIGUOUS (0x0020 | 0x0010 | 0x0008)
#endif

/* A struct format of one native element; kNone: none that is plain. */
enum { kNone = -1 };

static int32_t dtype_of(const char *format, Py_ssize_t size) {
  static const int32_t of_signed[] = {DICOMM_INT8, DICOMM_INT16, DICOMM_INT32, DICOMM_INT64};
  static const int32_t of_unsigned[] = {DICOMM_UINT8, DICOMM_UINT16, DICOMM_UINT32, DICOMM_UINT64};
  const int width = size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : size == 8 ? 3 : -1;
  if (format == NULL || width < 0) return kNone;
  if (strcmp(format, "Zf") == 0) return DICOMM_COMPLEX64;
  if (format[0] == 0 || format[1] != 0) return kNone;
  if (strchr("bhilq", format[0]) != NULL) return of_signed[width];
  if (strchr("BHILQ", format[0]) != NULL) return of_unsigned[width];
  switch (format[0]) {
    case 'e':
      return DICOMM_FLOAT16;
    case 'f':
      return DICOMM_FLOAT32;
    case 'd':
      return DICOMM_FLOAT64;
    case '?':
      return DICOMM_BOOL;
    default:
      return kNone;
  }
}

/* Into *block and *dtype, and *held for as long as they are in use. 0: not plain. */
static int view(PyObject *object, int writable, Py_buffer *held, dicomm_block *block, int32_t *dtype) {
  const int flags = PyBUF_FORMAT | PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0);
  if (!PyObject_GetBuffer(object, held, flags)) {
    const int32_t found = dtype_of(held->format, held->itemsize);
    if (found != kNone && (*dtype == kNone || *dtype == found)) {
      *dtype = found;
      block->data = held->buf;
      block->count = held->len / held->itemsize;
      return 1;
    }
    PyBuffer_Release(held);
  }
  PyErr_Clear();
  held->obj = NULL;
  return 0;
}

/* run(comm, rank, size, opcode, send, recv, peer, reduce, tag, wait_ns)
 *
 * comm: a dicomm_comm * as a number, 0 once closed. send, recv: None for none; the same object is used in
 * place. reduce: a code, negative when it is none of the plain ones. Returns True when it was done (a
 * receive: the sender and the bytes), False when nothing was started because something is not plain, None
 * when it could not be started, or the address of the dicomm_request, which goes on or has failed. */
static PyObject *run(PyObject *module, PyObject *const *arguments, Py_ssize_t count) {
  (void)module;
  if (count != 10) return PyErr_Format(PyExc_TypeError, "10 arguments are needed, not %zd", count);
  PyObject *const send = arguments[4], *const recv = arguments[5];
  dicomm_comm *const comm = (dicomm_comm *)PyLong_AsVoidPtr(arguments[0]);
  const long rank = PyLong_AsLong(arguments[1]), size = PyLong_AsLong(arguments[2]);
  const long peer = PyLong_AsLong(arguments[6]), reduce = PyLong_AsLong(arguments[7]);
  const long long tag = PyLong_AsLongLong(arguments[8]), wait_ns = PyLong_AsLongLong(arguments[9]);
  dicomm_op op = {.size = sizeof op, .opcode = (int32_t)PyLong_AsLong(arguments[3]), .dtype = kNone};
  if (PyErr_Occurred() || comm == NULL || reduce < 0 || tag < 0 || peer < -1 || peer >= size) {
    PyErr_Clear();
    Py_RETURN_FALSE;
  }
  dicomm_block blocks[2] = {{0}};
  Py_buffer held[2];
  held[0].obj = held[1].obj = NULL;
  int plain = 1;
  if (recv != Py_None) {
    const int writable = op.opcode != DICOMM_BROADCAST || peer != rank;
    plain = view(recv, writable, &held[1], &blocks[1], &op.dtype);
    op.recv = &blocks[1], op.nrecv = 1;
  }
  if (send != Py_None && plain) {
    if (send == recv)
      blocks[0] = blocks[1];
    else
      plain = view(send, 0, &held[0], &blocks[0], &op.dtype);
    op.send = &blocks[0], op.nsend = 1;
  }
  if (send == Py_None && recv == Py_None) op.dtype = DICOMM_UINT8;
  op.peer = (int32_t)peer, op.reduce = (int32_t)reduce, op.tag = (uint64_t)tag;
  op.timeout_ns = DICOMM_TIMEOUT_DEFAULT;

  PyObject *result = plain ? NULL : Py_False;
  dicomm_request *request = NULL;
  dicomm_request_info info = {.size = sizeof info};
  dicomm_status status = DICOMM_OK;
  if (plain) {
    Py_BEGIN_ALLOW_THREADS;
    status = dicomm_start(comm, &op, &request);
    if (status == DICOMM_OK) status = dicomm_request_wait(request, wait_ns);
    if (status == DICOMM_OK) {
      dicomm_request_get_info(request, &info);
      dicomm_request_free(request);
    }
    Py_END_ALLOW_THREADS;
  }
  /* Whoever goes on with the request holds the buffers anew. */
  for (int i = 0; i < 2; ++i)
    if (held[i].obj != NULL) PyBuffer_Release(&held[i]);
  if (result == NULL && status != DICOMM_OK)
    return request == NULL ? Py_BuildValue("") : PyLong_FromVoidPtr(request);
  if (result == NULL && op.opcode == DICOMM_RECV)
    return Py_BuildValue("iK", info.source, (unsigned long long)info.bytes);
  if (result == NULL) result = Py_True;
  Py_INCREF(result);
  return result;
}

static PyMethodDef functions[] = {{"run", (PyCFunction)(void (*)(void))run, METH_FASTCALL, NULL},
                                  {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "dicomm._entry", NULL, 0, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__entry(void) { return PyModuleDef_Init(&definition); }
