"""Makes a DMA buffer of a memory file, has libibverbs register it on rxe0, and prints the error."""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct

UDMABUF_CREATE = 0x40187542  # _IOW('u', 0x42, struct udmabuf_create): of linux/udmabuf.h
LOCAL_WRITE = 1
SIZE = 1 << 20

memory = os.memfd_create("buffer", os.MFD_ALLOW_SEALING)
os.ftruncate(memory, SIZE)
fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
with open("/dev/udmabuf", "rb") as maker:
    # Of a bytearray, ioctl returns what the call returns: a file descriptor here.
    buffer = fcntl.ioctl(maker, UDMABUF_CREATE, bytearray(struct.pack("IIQQ", memory, 0, 0, SIZE)))

verbs = ctypes.CDLL("libibverbs.so.1", use_errno=True)
pointer = ctypes.c_void_p
verbs.ibv_get_device_list.restype = ctypes.POINTER(pointer)
verbs.ibv_open_device.argtypes, verbs.ibv_open_device.restype = [pointer], pointer
verbs.ibv_alloc_pd.argtypes, verbs.ibv_alloc_pd.restype = [pointer], pointer
verbs.ibv_reg_dmabuf_mr.argtypes = [
    pointer, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_int, ctypes.c_int
]  # fmt: skip
verbs.ibv_reg_dmabuf_mr.restype = pointer

device = verbs.ibv_open_device(verbs.ibv_get_device_list(None)[0])
domain = verbs.ibv_alloc_pd(device)
assert domain, "no protection domain"
region = verbs.ibv_reg_dmabuf_mr(domain, 0, SIZE, 0, buffer, LOCAL_WRITE)
print("registered" if region else os.strerror(ctypes.get_errno()))
