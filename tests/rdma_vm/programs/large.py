"""Rank 0 sends rank 1 a message of more than 4 GiB. On either side the buffer is a window of 64 MiB that is
mapped again and again, for the machine has not that much memory: what arrives last stays."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any

import numpy as np
from rdma_vm.programs.cards import other, say, wait_for_path

import dicomm

WINDOW = 64 << 20
SIZE = (4 << 30) + (5 << 20) + 12345
MAP_FIXED = 0x10


def windows() -> np.ndarray[Any, np.dtype[np.uint8]]:
    """SIZE bytes, of which those at equal distances within a window are the same memory."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    count = -(-SIZE // WINDOW)
    start = libc.mmap(None, count * WINDOW, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    window = os.memfd_create("window")
    os.truncate(window, WINDOW)
    both = mmap.PROT_READ | mmap.PROT_WRITE
    for at in range(start, start + count * WINDOW, WINDOW):
        assert libc.mmap(at, WINDOW, both, mmap.MAP_SHARED | MAP_FIXED, window, 0) == at
    os.close(window)
    return np.frombuffer((ctypes.c_ubyte * SIZE).from_address(start), np.uint8)


def main() -> None:
    content = np.random.default_rng(3).integers(0, 256, WINDOW, np.uint8)
    with dicomm.init() as comm:
        wait_for_path(comm, "rdma-direct")
        x = windows()
        if comm.rank == 0:
            x[:WINDOW] = content
            comm.send(x, 1, timeout=500)
        else:
            request = comm.irecv(x, 0, timeout=500)
            request.wait()
            assert request.bytes == SIZE
            assert (x[:WINDOW] == content).all()
        say(other(comm))
        comm.barrier()


if __name__ == "__main__":
    main()
