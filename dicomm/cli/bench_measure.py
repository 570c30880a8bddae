"""The measuring loop: subjects in turn, block by block, on the same memory.

A block is a number of iterations run back to back, timed on every rank; its time is the slowest rank's, so
that a rank that leaves an operation early (a broadcast's root) does not flatter the result. The median of the
blocks is reported. Before each block all ranks meet.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dicomm import Communicator
from dicomm.cli.bench_cases import Case, bus_factor
from dicomm.cli.bench_subjects import Subject
from dicomm.errors import DicommError

BLOCKS = 5


@dataclass(frozen=True)
class Result:
    """One subject's figures for one case; equal on every rank."""

    operation: str
    subject: str
    level: str
    path: str  # "" where the subject chooses
    ranks: int
    size: int  # bytes
    count: int  # elements
    dtype: str
    reduce: str  # "" where nothing is reduced
    time_us: float | None  # of one operation, one way for latency; None: not supported, see `reason`
    algbw: float | None  # GB/s (10^9)
    busbw: float | None
    errors: int | None  # wrong elements on all ranks together; None: not checked
    reason: str = ""


def measure(
    subjects: Sequence[Subject],
    case: Case,
    control: Communicator,
    *,
    iterations: int,
    warmups: int,
    check: bool,
) -> list[Result]:
    """Time and check ``case`` with every subject. Collective over ``control``."""
    loops: list[Callable[[int], None] | None] = []
    reasons: list[str] = []
    for subject in subjects:
        loop, reason = _prepare(subject, case, max(warmups, 1))
        loops.append(loop)
        reasons.append(reason)
    times = _time(loops, control, iterations)
    results = []
    for subject, loop, reason, seconds in zip(subjects, loops, reasons, times, strict=True):
        errors = _check(loop, case, control) if loop is not None and check else None
        results.append(_result(subject, case, seconds if loop is not None else None, errors, reason))
    return results


def _prepare(subject: Subject, case: Case, warmups: int) -> tuple[Callable[[int], None] | None, str]:
    """The subject's loop, warmed up; or why a foreign library refuses the case (it does so on every rank)."""
    case.fill()
    try:
        loop = subject.block(case)
        loop(warmups)
    except DicommError:
        raise
    except Exception as error:
        if subject.name == "dicomm":
            raise
        return None, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return loop, ""


def _time(
    loops: Sequence[Callable[[int], None] | None], control: Communicator, iterations: int
) -> list[float]:
    """Seconds of one iteration for each loop: the median over blocks of the slowest rank's mean."""
    blocks = min(BLOCKS, iterations)
    share = -(-iterations // blocks)
    seconds = np.zeros((len(loops), blocks))
    for block in range(blocks):
        for index, loop in enumerate(loops):
            if loop is None:
                continue
            control.barrier()
            start = time.perf_counter()
            loop(share)
            seconds[index, block] = (time.perf_counter() - start) / share
    slowest = np.empty_like(seconds)
    control.allreduce(seconds, slowest, op="max")
    return [float(row) for row in np.median(slowest, axis=1)]


def _check(loop: Callable[[int], None], case: Case, control: Communicator) -> int:
    case.fill()
    control.barrier()
    loop(1)
    wrong = np.array([case.wrong()], dtype=np.int64)
    total = np.empty_like(wrong)
    control.allreduce(wrong, total, op="sum")
    return int(total[0])


def _result(subject: Subject, case: Case, seconds: float | None, errors: int | None, reason: str) -> Result:
    algbw = busbw = None
    if seconds is not None:
        if case.operation == "latency":
            seconds /= 2  # there and back
        algbw = case.size / seconds / 1e9
        busbw = algbw * bus_factor(case.operation, case.ranks)
    return Result(
        operation=case.operation,
        subject=subject.name,
        level=subject.level,
        path=subject.path,
        ranks=case.ranks,
        size=case.size,
        count=case.count,
        dtype=case.dtype,
        reduce=case.reduce if case.operation in ("allreduce", "reduce", "reduce_scatter") else "",
        time_us=None if seconds is None else seconds * 1e6,
        algbw=algbw,
        busbw=busbw,
        errors=errors,
        reason=reason,
    )
