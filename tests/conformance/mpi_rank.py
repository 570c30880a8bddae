"""One rank of a job that mpirun starts: `python mpi_rank.py operations mpi,mpi,alpha,alpha`.

A rank's kind is "mpi", whose island's library is MPI, a simulated brand, or "cpu". It ends with "fine".
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import sys
import time

import numpy as np
from mpi4py import MPI

import dicomm
from support import reference
from support.cells import OPERATIONS, check_cell, ops_for
from support.reference import same_bits, values

KINDS = sys.argv[2].split(",")
BY_ISLAND = ",".join(
    f"{op}:islands" for op in ("broadcast", "allreduce", "reduce", "allgather", "reduce_scatter")
)
COUNTS = (0, 1, 7, 1000)


def join(rules: str = "") -> dicomm.Communicator:
    kind = KINDS[MPI.COMM_WORLD.Get_rank()]
    settings = {"mpi": {"island_library": "mpi"}, "cpu": {}}.get(kind, {"simulate": kind})
    config = dataclasses.replace(
        dicomm.Config(), interface="127.0.0.1", timeout=20.0, algorithms=rules, **settings
    )
    return dicomm.init(MPI.COMM_WORLD, config=config, timeout=20.0)


def operations() -> None:
    """Every dtype and op at one of the counts, and every count, by island and by the built-in choice."""
    counts = itertools.cycle(COUNTS)
    wrong: list[str] = []
    with join(BY_ISLAND) as comm:
        told = {rank.chip.library for rank in comm.topology.ranks if KINDS[rank.rank] == "mpi"}
        assert told == {"mpi"}, told
        for operation in OPERATIONS:
            cells = [
                (dtype, op, next(counts)) for dtype in reference.DTYPES for op in ops_for(operation, dtype)
            ]
            cells += [("float32", "sum", 140001), ("bfloat16", "avg", 140001)]
            wrong += [text for cell in cells if (text := check_cell(comm, operation, *cell))]
        nan = np.array([np.nan, 1.0] if comm.rank == 1 else [1.0, 2.0])
        comm.allreduce(nan, op="max")
        assert same_bits(nan, np.array([np.nan, 2.0])), nan
    with join() as comm:
        for operation in OPERATIONS:
            cells = [("float32", "sum", count) for count in (*COUNTS, 140001)]
            wrong += [text for cell in cells if (text := check_cell(comm, operation, *cell))]
        between_any_two(comm)
        on_parts(comm)
    assert not wrong, "\n".join(wrong[:10])


def between_any_two(comm: dicomm.Communicator) -> None:
    got = [np.zeros(50001, np.float32) for _ in range(comm.size)]
    sent = [values("float32", 50001, comm.rank * 16 + peer) for peer in range(comm.size)]
    requests = [comm.irecv(got[peer], peer) for peer in range(comm.size)]
    requests += [comm.isend(sent[peer], peer) for peer in range(comm.size)]
    for request in requests:
        request.wait()
    assert all(same_bits(got[r], values("float32", 50001, r * 16 + comm.rank)) for r in range(comm.size))


def on_parts(comm: dicomm.Communicator) -> None:
    """Operations of two groups at once, one of whose members are in the other order."""
    part = comm.split(comm.rank % 2, key=-comm.rank)
    assert part is not None
    with part:
        whole, half = np.full(70000, comm.rank, np.float32), np.full(70000, comm.rank, np.float32)
        for request in (comm.iallreduce(whole), part.iallreduce(half)):
            request.wait()
        assert (whole == sum(range(comm.size))).all()
        assert (half == sum(range(comm.rank % 2, comm.size, 2))).all()


def moves_by_mpi() -> None:
    """Where all ranks are one island nothing of an operation's data goes by dicomm's own paths."""
    with join() as comm:

        def sent() -> int:
            return sum(peer["bytes_sent"] for peer in comm.stats()["peers"])

        before = sent()
        got = comm.irecv(np.zeros(10000, np.uint8), (comm.rank - 1) % comm.size)
        comm.send(np.zeros(10000, np.uint8), (comm.rank + 1) % comm.size)
        got.wait()
        assert sent() - before >= 10000  # so they are counted
        comm.barrier()
        before, x = sent(), np.full(1 << 20, comm.rank, np.float32)
        comm.allreduce(x)
        comm.alltoall(x[: comm.size * 1000].copy(), np.zeros(comm.size * 1000, np.float32))
        assert (x == sum(range(comm.size))).all()
        assert sent() - before < 10000, comm.stats()["peers"]


def dies() -> None:
    """Rank 1 dies while the others wait for it inside MPI."""
    comm = join(BY_ISLAND)
    if comm.rank == 1:
        time.sleep(0.5)
        os._exit(0)
    begun = time.monotonic()
    try:
        comm.allreduce(np.zeros(1 << 20, np.float32))
    except dicomm.DicommError as error:
        print(f"{type(error).__name__} after {time.monotonic() - begun:.1f} s", flush=True)
    os._exit(0)


def aborts() -> None:
    """Rank 1 makes no call; its abort frees those who wait inside MPI."""
    with join(BY_ISLAND) as comm:
        begun = time.monotonic()
        if comm.rank == 1:
            time.sleep(0.3)
            comm.abort("the test says so")
        else:
            try:
                comm.allreduce(np.zeros(1 << 20, np.float32))
                raise AssertionError("no error")
            except dicomm.Aborted:
                assert time.monotonic() - begun < 5


if __name__ == "__main__":
    {f.__name__: f for f in (operations, moves_by_mpi, dies, aborts)}[sys.argv[1]]()
    print("fine", flush=True)
