"""One of two ranks: 0 sends more than 4 GiB in one message, from and to few pages mapped many times."""

from __future__ import annotations

import ctypes
import mmap
import os
import time

import numpy as np
from rdma_vm.programs.cards import other, say, wait_for_path

import dicomm

WINDOW = 64 << 20  # of memory
WINDOWS = 65  # 4 GiB and a window
TAIL = 3 << 20  # pages of its own, so that it is seen whether the end arrives
BYTES = WINDOW * WINDOWS + TAIL

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
MAP_FIXED, MAP_NORESERVE = 0x10, 0x4000


def memory() -> np.ndarray:
    """BYTES bytes: WINDOWS times the same pages, then TAIL bytes of others."""
    writable = mmap.PROT_READ | mmap.PROT_WRITE
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
    base = libc.mmap(None, BYTES, writable, private, -1, 0)
    file = os.memfd_create("window")
    os.ftruncate(file, WINDOW)
    for number in range(WINDOWS):
        at = base + number * WINDOW
        assert libc.mmap(at, WINDOW, writable, mmap.MAP_SHARED | MAP_FIXED, file, 0) == at
    os.close(file)
    return np.frombuffer((ctypes.c_uint8 * BYTES).from_address(base), np.uint8)


def main() -> None:
    window = np.random.default_rng(1).integers(0, 256, WINDOW, np.uint8)
    tail = np.random.default_rng(2).integers(0, 256, TAIL, np.uint8)
    buffer = memory()
    with dicomm.init() as comm:
        wait_for_path(comm, "rdma-direct")
        start = time.monotonic()
        if comm.rank == 0:
            buffer[:WINDOW] = window
            buffer[-TAIL:] = tail
            comm.send(buffer, 1)
        else:
            comm.recv(buffer, 0)
            assert (buffer[:WINDOW] == window).all()
            assert (buffer[-TAIL:] == tail).all()
        seconds = time.monotonic() - start
        say({"bytes": buffer.nbytes, "seconds": seconds, **other(comm)})
        comm.barrier()


if __name__ == "__main__":
    main()
