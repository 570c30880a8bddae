"""The expectations of `dicomm bench` against a naive simulation of each operation."""

from __future__ import annotations

import numpy as np
import pytest

from dicomm.cli.bench_cases import (
    DTYPES,
    OPERATIONS,
    POINT_TO_POINT,
    REDUCE_OPS,
    REDUCING,
    Array,
    Case,
    bus_factor,
    sizes,
)

COLLECTIVES = [name for name in OPERATIONS if name not in (*POINT_TO_POINT, "barrier")]


def cases(operation: str, size: int, dtype: str, reduce: str, ranks: int) -> list[Case]:
    made = [Case.make(operation, size, dtype, reduce, rank, ranks) for rank in range(ranks)]
    for case in made:
        case.fill()
    return made


def reduced(inputs: list[Array], reduce: str) -> Array:
    """Element by element in Python's exact numbers."""
    columns = zip(*(array.tolist() for array in inputs), strict=True)
    functions = {
        "sum": sum,
        "prod": lambda column: int(np.prod([int(value) for value in column])),
        "min": min,
        "max": max,
        "avg": lambda column: sum(column) / len(column),
    }
    whole = inputs[0].dtype.kind in "iu"
    values = [functions[reduce](column) for column in columns]
    return np.array([int(value) if whole else value for value in values]).astype(inputs[0].dtype)


def simulate(made: list[Case]) -> list[Array | None]:
    """What each rank's recv holds afterwards, by the definition of the operation."""
    first, sends = made[0], [case.send for case in made]
    ranks, part = len(made), first.part
    parts = [[send[part * r : part * (r + 1)] for r in range(ranks)] for send in sends]
    nothing: list[Array | None] = [None] * (ranks - 1)
    if first.operation == "broadcast":
        return [sends[0]] * ranks
    if first.operation == "allreduce":
        return [reduced(sends, first.reduce)] * ranks
    if first.operation == "reduce":
        return [reduced(sends, first.reduce), *nothing]
    if first.operation == "allgather":
        return [np.concatenate(sends)] * ranks
    if first.operation == "gather":
        return [np.concatenate(sends), *nothing]
    if first.operation == "scatter":
        return list(parts[0])
    if first.operation == "alltoall":
        return [np.concatenate([parts[other][rank] for other in range(ranks)]) for rank in range(ranks)]
    assert first.operation == "reduce_scatter"
    return [reduced([parts[other][rank] for other in range(ranks)], first.reduce) for rank in range(ranks)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
@pytest.mark.parametrize("operation", COLLECTIVES)
@pytest.mark.parametrize("size", [1, 64, 3000])
def test_expected_is_what_the_operation_does(operation: str, size: int, ranks: int) -> None:
    made = cases(operation, size, "int32", "sum", ranks)
    for case, result in zip(made, simulate(made), strict=True):
        expected = case.expected()
        assert (expected is None) == (result is None)
        if expected is not None:
            assert expected.dtype == case.recv.dtype
            assert expected.size == case.recv.size
            np.testing.assert_array_equal(expected, result)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reduce", REDUCE_OPS)
@pytest.mark.parametrize("operation", REDUCING)
def test_reductions_in_every_dtype(operation: str, reduce: str, dtype: str) -> None:
    made = cases(operation, 2048, dtype, reduce, 3)
    expected, result = made[0].expected(), simulate(made)[0]
    assert expected is not None
    np.testing.assert_array_equal(expected, result)


@pytest.mark.parametrize("operation", [*COLLECTIVES, *POINT_TO_POINT])
def test_every_wrong_element_is_counted(operation: str) -> None:
    case = Case.make(operation, 4096, "float32", "sum", 1, 2)
    expected = case.expected()
    if expected is None:
        assert case.wrong() == 0
        return
    case.recv[:] = expected
    assert case.wrong() == 0
    case.recv[3] += 1
    case.recv[7] = np.nan
    assert case.wrong() == 2


@pytest.mark.parametrize("operation", ["allgather", "alltoall", "scatter", "bandwidth"])
def test_parts_in_the_wrong_place_are_wrong(operation: str) -> None:
    case = Case.make(operation, 1 << 16, "uint8", "sum", 1, 4)
    expected = case.expected()
    assert expected is not None
    case.recv[:] = np.roll(expected, 1024)
    assert case.wrong() > 100


@pytest.mark.parametrize("operation", COLLECTIVES)
def test_a_buffer_that_was_not_written_is_wrong(operation: str) -> None:
    for case in cases(operation, 4096, "float64", "sum", 4):
        if case.expected() is not None and not (operation == "broadcast" and case.rank == 0):
            assert case.wrong() > 0


@pytest.mark.parametrize(
    ("operation", "at_2", "at_4"),
    [
        ("latency", 1, 1), ("bandwidth", 1, 1), ("bibandwidth", 2, 2), ("barrier", 0, 0), ("broadcast", 1, 1),
        ("reduce", 1, 1), ("allreduce", 1, 1.5), ("allgather", 0.5, 0.75), ("reduce_scatter", 0.5, 0.75),
        ("alltoall", 0.5, 0.75), ("gather", 0.5, 0.75), ("scatter", 0.5, 0.75),
    ],
)  # fmt: skip
def test_bus_factors(operation: str, at_2: float, at_4: float) -> None:
    assert (bus_factor(operation, 2), bus_factor(operation, 4)) == (at_2, at_4)


def test_sizes_grow_by_the_factor_and_include_both_ends() -> None:
    assert list(sizes(8, 128, 4)) == [8, 32, 128]
    assert list(sizes(8, 127, 4)) == [8, 32]


def test_sizes_are_rounded_up_to_an_element_per_rank() -> None:
    case = Case.make("allgather", 4, "float32", "sum", 0, 3)
    assert (case.count, case.part, case.size, case.send.size, case.recv.size) == (3, 1, 12, 1, 3)
