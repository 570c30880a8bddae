"""Blocks of iterations, library by library in turn, and what comes out of them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from dicomm.cli.bench_cases import bus_factor
from jobs import Job

WARMUPS, MOST_ITERATIONS = 3, 5000
LEAST_ITERATIONS = {"bandwidth": 8}  # messages in flight; of the others one


@dataclass(frozen=True)
class Budget:
    """How much time a run may take.

    A block runs about `block_s`, at least one iteration. Of each library there are as many blocks per
    operation and size as fit into `total_s`, at least `least` and at most `most`: short blocks often escape
    the other processes of a busy machine, long ones never do, and the median needs half of them to escape.
    """

    quick: bool
    block_s: float
    total_s: float
    least: int
    most: int
    sizes: tuple[int, ...]  # bytes
    launches: int  # of each C program, in turn with what it is compared with


K, M = 1 << 10, 1 << 20
FULL = Budget(False, 0.003, 0.2, 5, 31, (4, 64, K, 16 * K, 64 * K, 256 * K, M, 4 * M, 16 * M, 64 * M), 7)
QUICK = Budget(True, 0.003, 0.05, 3, 11, (4, 64 * K, M), 3)


@dataclass(frozen=True)
class Point:
    """One library's figure for one operation at one size."""

    subject: str
    operation: str
    ranks: int
    pinned: bool  # as for a Job
    asked: int  # bytes, before rounding to whole parts
    size: int  # bytes, as docs/reference/bench.md defines it
    seconds: float | None  # median block, slowest rank, one way for latency; None: refused, see reason
    blocks: list[float] = field(default_factory=list)
    wrong: int = 0  # elements
    reason: str = ""

    @property
    def bus_gbs(self) -> float | None:
        return (
            self.size * bus_factor(self.operation, self.ranks) / self.seconds / 1e9 if self.seconds else None
        )


def compare(jobs: Sequence[Job], operation: str, size: int, budget: Budget) -> list[Point]:
    """One operation at one size by every job, blocks alternating; checks the results, too."""
    answers = {
        job: job.command(do="prepare", operation=operation, size=size, warmups=WARMUPS) for job in jobs
    }
    reasons = {job: next((a["reason"] for a in answers[job] if a["reason"]), "") for job in jobs}
    able = [job for job in jobs if not reasons[job]]
    once = {job: block(job, 2) for job in able}
    least = LEAST_ITERATIONS.get(operation, 1)
    iterations = {job: max(least, min(MOST_ITERATIONS, round(budget.block_s / once[job]))) for job in able}
    longest = max((once[job] * iterations[job] for job in able), default=1.0)
    times: dict[Job, list[float]] = {job: [] for job in able}
    for _ in range(max(budget.least, min(budget.most, round(budget.total_s / longest)))):
        for job in able:
            seconds = block(job, iterations[job])
            times[job].append(seconds / 2 if operation == "latency" else seconds)
    points = []
    for job in jobs:
        wrong = sum(answer["wrong"] for answer in job.command(do="check")) if job in able else 0
        points.append(
            Point(
                subject=job.subject,
                operation=operation,
                ranks=job.ranks,
                pinned=job.pinned,
                asked=size,
                size=answers[job][0]["size"],
                seconds=statistics.median(times[job]) if job in able else None,
                blocks=times.get(job, []),
                wrong=wrong,
                reason=reasons[job],
            )
        )
    return points


def block(job: Job, iterations: int) -> float:
    """Seconds of an iteration on the slowest rank."""
    return float(max(answer["seconds"] for answer in job.command(do="block", iterations=iterations)))


def ratio(points: Sequence[Point]) -> float | None:
    """The second library's time over the first's; None where one refused."""
    own, peer = points[0].seconds, points[1].seconds
    return peer / own if own and peer else None
