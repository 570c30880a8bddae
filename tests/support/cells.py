"""One cell of the matrix of collectives on one rank, against numpy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

import dicomm
from support import reference
from support.ranks import Ranks
from support.reference import Array, dtype_of, values

REDUCING = {"allreduce", "reduce", "reduce_scatter"}
OPERATIONS = (
    "broadcast",
    "allreduce",
    "reduce",
    "allgather",
    "reduce_scatter",
    "alltoall",
    "gather",
    "scatter",
)
Cell = tuple[str, str, int]  # dtype, reduce op, count


def check_cell(comm: dicomm.Communicator, operation: str, dtype: str, op: str, count: int) -> str:
    """Runs one cell on one rank; returns what is wrong, "" when nothing is."""
    size, rank = comm.size, comm.rank
    root = count % size
    blank = np.zeros(0, dtype_of(dtype))
    parts = size if operation in ("reduce_scatter", "alltoall", "scatter") else 1
    inputs = [values(dtype, count * parts, r, op) for r in range(size)]
    mine = inputs[rank].copy()
    more: dict[str, Any] = {}
    if operation in REDUCING:
        more = {"op": op, "factor": reference.FACTOR if op == "premul_sum" else None}
    got: Array
    want: Array
    if operation == "broadcast":
        got, want = (mine if rank == root else np.zeros_like(mine)), inputs[root]
        comm.broadcast(got, root)
    elif operation == "allreduce":
        got, want = np.zeros_like(mine), reference.reduce(inputs, dtype, op)
        comm.allreduce(mine, got, **more)
    elif operation == "reduce":
        got = np.zeros_like(mine)
        comm.reduce(mine, got, root=root, **more)
        want = reference.reduce(inputs, dtype, op) if rank == root else np.zeros_like(mine)
    elif operation == "allgather":
        got, want = np.zeros(count * size, mine.dtype), np.concatenate(inputs)
        comm.allgather(mine, got)
    elif operation == "reduce_scatter":
        got = np.zeros(count, mine.dtype)
        comm.reduce_scatter(mine, got, **more)
        want = reference.reduce([x[rank * count :][:count] for x in inputs], dtype, op)
    elif operation == "alltoall":
        got = np.zeros_like(mine)
        comm.alltoall(mine, got)
        want = np.concatenate([x[rank * count :][:count] for x in inputs])
    elif operation == "gather":
        got = np.zeros(count * size, mine.dtype) if rank == root else blank
        comm.gather(mine, got if rank == root else None, root)
        want = np.concatenate(inputs) if rank == root else blank
    else:
        got = np.zeros(count, mine.dtype)
        comm.scatter(mine if rank == root else None, got, root)
        want = inputs[root][rank * count :][:count]
    cell = f"{operation} {dtype} {op} x{count} on rank {rank}"
    if not reference.same_bits(got, want):
        wrong = np.flatnonzero(got.view(np.uint8) != want.view(np.uint8))
        return f"{cell}: {got[:8]} instead of {want[:8]}, {wrong.size} bytes differ"
    if operation != "broadcast" and not reference.same_bits(mine, inputs[rank]):
        return f"{cell}: the input was changed"
    return ""


def run_cells(ranks: Ranks, operation: str, cells: list[Cell]) -> None:
    def all_cells(comm: dicomm.Communicator) -> list[str]:
        found = [check_cell(comm, operation, *cell) for cell in cells]
        return [text for text in found if text]

    wrong = list(itertools.chain.from_iterable(ranks.run(all_cells)))
    assert not wrong, "\n".join(wrong[:10])


def ops_for(operation: str, dtype: str) -> list[str]:
    if operation not in REDUCING:
        return ["sum"]  # only decides the values that are moved
    return [op for op in reference.OPS if reference.supported(dtype, op)]
