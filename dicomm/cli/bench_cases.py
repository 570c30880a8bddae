"""What `dicomm bench` measures: operations, buffer sizes, inputs and the results they must give. Pure.

`size` is the bytes of the largest buffer that one rank holds: the whole vector of an allreduce, broadcast or
reduce, and all ranks' parts together where an operation cuts or joins (allgather, reduce_scatter, alltoall,
gather, scatter). docs/reference/bench.md derives the bandwidths from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

POINT_TO_POINT = ("latency", "bandwidth", "bibandwidth")
REDUCING = ("allreduce", "reduce", "reduce_scatter")
_PARTED = ("allgather", "reduce_scatter", "alltoall", "gather", "scatter")
_IN_PLACE = ("allreduce", "reduce", "broadcast")  # some libraries overwrite the buffer they read

_BUS_FACTOR: dict[str, Callable[[int], float]] = {
    "latency": lambda n: 1.0,
    "bandwidth": lambda n: 1.0,
    "bibandwidth": lambda n: 2.0,
    "barrier": lambda n: 0.0,
    "broadcast": lambda n: 1.0,
    "reduce": lambda n: 1.0,
    "allreduce": lambda n: 2.0 * (n - 1) / n,
    "allgather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "alltoall": lambda n: (n - 1) / n,
    "gather": lambda n: (n - 1) / n,
    "scatter": lambda n: (n - 1) / n,
}
OPERATIONS = tuple(_BUS_FACTOR)

REDUCE_OPS = ("sum", "prod", "min", "max", "avg")
DTYPES = (
    "float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
)  # fmt: skip

_PERIOD = 251  # prime: a part that lands in the wrong place does not look right by accident


def bus_factor(operation: str, ranks: int) -> float:
    """busbw / algbw: what share of `size` the busiest direction of a rank's link must carry."""
    return _BUS_FACTOR[operation](ranks)


def sizes(begin: int, end: int, factor: int) -> Iterator[int]:
    while begin <= end:
        yield begin
        begin *= factor


@dataclass
class Case:
    """One operation at one size, as one rank sees it; the root is rank 0."""

    operation: str
    rank: int
    ranks: int
    dtype: str
    reduce: str
    count: int  # elements of the largest buffer
    part: int  # elements of one rank's part, where there are parts
    send: Array = field(repr=False)
    recv: Array = field(repr=False)

    @classmethod
    def make(cls, operation: str, size: int, dtype: str, reduce: str, rank: int, ranks: int) -> Case:
        """The case whose largest buffer has `size` bytes, rounded up so that every rank has an element."""
        item = np.dtype(dtype)
        count = max(1, size // item.itemsize)
        part = -(-count // ranks)
        if operation in _PARTED:
            count = part * ranks
        if operation == "barrier":
            count = part = 0
        send_count = part if operation in ("allgather", "gather") else count
        recv_count = part if operation in ("reduce_scatter", "scatter") else count
        return cls(
            operation, rank, ranks, dtype, reduce, count, part,
            send=np.empty(send_count, item), recv=np.empty(recv_count, item),
        )  # fmt: skip

    @property
    def size(self) -> int:
        """Bytes, after rounding."""
        return self.count * np.dtype(self.dtype).itemsize

    def fill(self) -> None:
        """Put this rank's input in place and wipe the output."""
        self.send[:] = _pattern(self.rank, self.dtype, 0, self.send.size)
        if self.operation in _IN_PLACE and not (self.operation == "broadcast" and self.rank):
            self.recv[:] = self.send
        else:
            self.recv[:] = 0

    def expected(self) -> Array | None:
        """What must lie in `recv`, from numpy alone; None where this rank receives nothing."""
        ranks, rank, part = range(self.ranks), self.rank, self.part
        if self.operation in ("latency", "bibandwidth"):
            return self._part_of(1 - rank, 0, self.count) if rank < 2 else None
        if self.operation == "bandwidth":
            return self._part_of(0, 0, self.count) if rank == 1 else None
        if self.operation == "broadcast":
            return self._part_of(0, 0, self.count)
        if self.operation == "scatter":
            return self._part_of(0, rank * part, part)
        if self.operation == "alltoall":
            return np.concatenate([self._part_of(other, rank * part, part) for other in ranks])
        if self.operation == "reduce_scatter":
            return self._reduced(rank * part, part)
        if self.operation == "barrier" or (self.operation in ("reduce", "gather") and rank != 0):
            return None
        if self.operation in ("allgather", "gather"):
            return np.concatenate([self._part_of(other, 0, part) for other in ranks])
        return self._reduced(0, self.count)

    def wrong(self) -> int:
        """How many elements of `recv` are not what they must be."""
        expected = self.expected()
        if expected is None:
            return 0
        if self.operation in REDUCING and self.reduce == "avg" and expected.dtype.kind == "f":
            right = np.isclose(self.recv, expected, rtol=4 * float(np.finfo(expected.dtype).eps), atol=0)
            return int(np.count_nonzero(~right))
        return int(np.count_nonzero(self.recv != expected))

    def _part_of(self, rank: int, start: int, count: int) -> Array:
        return _pattern(rank, self.dtype, start, count)

    def _reduced(self, start: int, count: int) -> Array:
        """The inputs repeat, so reducing one period of them is enough; sums stay exact in every dtype."""
        inputs = [_pattern(rank, self.dtype, start, min(count, _PERIOD)) for rank in range(self.ranks)]
        item = np.dtype(self.dtype)
        stacked = np.stack(inputs)
        if self.reduce == "avg":
            total = stacked.astype("float64").sum(axis=0)
            one = (total / self.ranks if item.kind == "f" else np.trunc(total / self.ranks)).astype(item)
        else:
            function = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}[self.reduce]
            one = function.reduce(stacked, axis=0, dtype=item)
        return np.resize(one, count)


def _pattern(rank: int, dtype: str, start: int, count: int) -> Array:
    """Rank's input elements start .. start+count: small whole numbers, differing from rank to rank."""
    tile = np.random.default_rng(rank).integers(1, 4, _PERIOD).astype(dtype)
    return np.resize(np.roll(tile, -(start % _PERIOD)), count)
