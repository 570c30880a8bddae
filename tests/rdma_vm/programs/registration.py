"""One of two ranks that send from and receive into memory that is unmapped and mapped anew at its address."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
from rdma_vm.programs.cards import say, wait_for_path

import dicomm

ROUNDS = 40
BYTES = 300_000  # of a message; not whole pages
PAGES = (BYTES + 2 * mmap.PAGESIZE - 1) // mmap.PAGESIZE
OFFSET = 100  # within the first page

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
MAP_FIXED_NOREPLACE = 0x100000


class Mapping:
    """Memory that comes and goes at one address."""

    def __init__(self) -> None:
        self.address = 0
        self.map()

    def map(self) -> np.ndarray:
        """New pages. The array is valid until unmap()."""
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | (MAP_FIXED_NOREPLACE if self.address else 0)
        got = libc.mmap(self.address, PAGES * mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
        assert got not in (None, ctypes.c_void_p(-1).value), ctypes.get_errno()
        assert self.address in (0, got)
        self.address = got
        view = (ctypes.c_uint8 * BYTES).from_address(got + OFFSET)
        return np.frombuffer(view, np.uint8)

    def unmap(self) -> None:
        assert libc.munmap(self.address, PAGES * mmap.PAGESIZE) == 0


def content(rank: int, number: int) -> np.ndarray:
    return (np.arange(BYTES, dtype=np.uint32) * 31 + 7 * number + rank).astype(np.uint8)


def main() -> None:
    with dicomm.init() as comm:
        wait_for_path(comm, "rdma-direct")
        out, into = Mapping(), Mapping()
        out.unmap()
        into.unmap()
        peer = 1 - comm.rank
        for step in range(ROUNDS):
            source, target = out.map(), into.map()
            for again in range(2):  # the second finds the first's registrations
                number = 2 * step + again
                source[:] = content(comm.rank, number)
                requests = [comm.irecv(target, peer), comm.isend(source, peer)]
                for request in requests:
                    request.wait()
                assert (target == content(peer, number)).all(), f"message {number}"
            out.unmap()
            into.unmap()
        counters = comm.stats()["context"]["transports"]["rdma"]
        say({name: value for name, value in counters.items() if name.startswith(("region", "direct"))})
        comm.barrier()


if __name__ == "__main__":
    main()
