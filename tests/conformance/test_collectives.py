"""The matrix: operation x dtype x reduce op x count x ranks x algorithm, against numpy.

Ranks are threads. One job per (ranks, algorithms) serves all its cells. The default run takes every dtype and
op at some sizes; `-m slow` takes the whole matrix.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import dicomm
from support import reference
from support.cells import OPERATIONS, ops_for, run_cells
from support.ranks import Ranks, jobs_by_rules
from support.reference import dtype_of

COUNTS = (0, 1, 7, 1000, 70001)
SIZES = (1, 2, 3, 4, 7)


def algorithms() -> dict[str, list[str]]:
    """By operation, as the library names them: it lists "allreduce:ring". The rest: test_islands.py and
    test_reducers.py."""
    found: dict[str, list[str]] = {}
    for entry in dicomm.build_info()["algorithms"]:
        operation, name = entry.split(":")
        if name not in ("islands", "library", "workers", "reducers", "reducers_islands"):
            found.setdefault(operation, []).append(name)
    return found


CHOICES = [(op, name) for op in OPERATIONS for name in algorithms()[op]]
IDS = [f"{op}-{name}" for op, name in CHOICES]


@pytest.fixture(scope="module", params=SIZES, ids=lambda size: f"{size}ranks")
def jobs(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Ranks]]:
    """jobs(rules): the job of this size that follows the algorithm rules."""
    with jobs_by_rules(lambda rules: Ranks(request.param, algorithms=rules, timeout=30.0)) as get:
        yield get


@pytest.mark.parametrize(("operation", "algorithm"), CHOICES, ids=IDS)
def test_some_of_everything(jobs: Callable[[str], Ranks], operation: str, algorithm: str) -> None:
    """Every dtype and op, each at two of the counts."""
    counts = itertools.cycle(COUNTS[:-1])
    cells = [
        (dtype, op, next(counts))
        for dtype in reference.DTYPES
        for op in ops_for(operation, dtype)
        for _ in range(2)
    ]
    cells += [("float32", "sum", count) for count in COUNTS] + [("bfloat16", "avg", 70001)]
    run_cells(
        jobs(",".join(f"{op}:{name}" for op, name in first_of_each(operation, algorithm))), operation, cells
    )


def first_of_each(operation: str, algorithm: str) -> list[tuple[str, str]]:
    """Rules for one job in which `operation` uses `algorithm`; jobs are shared between operations."""
    index = algorithms()[operation].index(algorithm)
    return [(op, names[index]) for op, names in algorithms().items() if index < len(names)]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_built_in_choice(jobs: Callable[[str], Ranks], operation: str) -> None:
    cells = [
        (dtype, ops_for(operation, dtype)[0], count) for dtype in ("float32", "float16") for count in COUNTS
    ]
    run_cells(jobs(""), operation, cells)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("operation", "algorithm"), CHOICES, ids=IDS)
def test_everything(jobs: Callable[[str], Ranks], operation: str, algorithm: str) -> None:
    cells = [(d, op, n) for d in reference.DTYPES for op in ops_for(operation, d) for n in COUNTS]
    run_cells(
        jobs(",".join(f"{op}:{name}" for op, name in first_of_each(operation, algorithm))), operation, cells
    )


@pytest.mark.parametrize("algorithm", algorithms()["barrier"])
def test_barrier(jobs: Callable[[str], Ranks], algorithm: str) -> None:
    """Nobody leaves before everybody has entered."""
    ranks = jobs(f"barrier:{algorithm}")
    entered = [0]

    def enter(comm: dicomm.Communicator) -> None:
        for round_ in range(1, 21):
            if comm.rank == round_ % comm.size:
                entered[0] = round_
            comm.barrier()
            assert entered[0] == round_
            comm.barrier()

    ranks.run(enter)


def test_unsupported_arithmetic_is_refused_before_anything_is_sent(jobs: Callable[[str], Ranks]) -> None:
    def refused(comm: dicomm.Communicator) -> None:
        for dtype in reference.DTYPES:
            for op in reference.OPS:
                if not reference.supported(dtype, op):
                    factor = reference.FACTOR if op == "premul_sum" else None
                    with pytest.raises((dicomm.NotSupported, dicomm.InvalidArgument)):
                        comm.allreduce(np.zeros(3, dtype_of(dtype)), op=op, factor=factor)
        total = np.ones(1, np.float32)
        comm.allreduce(total)  # the communicator is unharmed
        assert total[0] == comm.size

    jobs("").run(refused)
