"""Every operation at every size, dicomm beside one peer, on one host: what two sections share.

Both libraries are measured with ranks pinned and with ranks left to the scheduler, for what suits one may
ruin the other: pinned, gloo's helper threads share the core of the rank that waits for them; left free, two
ranks that wake each other may be put on one core. At each size the better placement of each library counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass

from dicomm.cli.bench_cases import OPERATIONS
from dicomm.cli.sizes import format_size
from jobs import Job
from measure import Budget, Point, compare, ratio
from report import Section, Target

RANKS = (2, 4)
MEASURED = tuple(name for name in OPERATIONS if name != "bibandwidth")


@dataclass(frozen=True)
class Limit:
    """At least `times` as fast as the peer at every size from `smallest` to `largest`."""

    times: float
    smallest: int
    largest: int


def run(name: str, own: str, peer: str, limits: Callable[[int], list[Limit]], budget: Budget) -> Section:
    """`limits` gives the targets for a number of ranks."""
    section = Section(name)
    for ranks in RANKS:
        cases = _measure([Job(s, ranks, pinned=p) for s in (own, peer) for p in (True, False)], budget)
        pairs = [[best(points[:2]), best(points[2:])] for points in cases]
        for operation in MEASURED:
            mine = [pair for pair in pairs if pair[0].operation == operation]
            targets = [_worst(mine, limit) for limit in limits(ranks)]
            section.targets += [target for target in targets if target is not None]
        for points, pair in zip(cases, pairs, strict=True):
            rows = [asdict(point) | {"bus_gbs": point.bus_gbs, "best": point in pair} for point in points]
            section.rows += rows
            section.wrong += sum(point.wrong for point in points[:2])
    return section


def _measure(jobs: Sequence[Job], budget: Budget) -> list[list[Point]]:
    cases = []
    with ExitStack() as stack:
        for job in jobs:
            stack.enter_context(job)
        for operation in MEASURED:
            for size in (0,) if operation == "barrier" else budget.sizes:
                cases.append(compare(jobs, operation, size, budget))
    return cases


def best(points: Sequence[Point]) -> Point:
    """The fastest; a refused one only if all are."""
    return min(points, key=lambda point: point.seconds or math.inf)


def _worst(pairs: Sequence[list[Point]], limit: Limit) -> Target | None:
    """The size at which dicomm does worst; None where no size was measured."""
    within = [pair for pair in pairs if limit.smallest <= pair[0].asked <= limit.largest]
    if not within:
        return None
    first = within[0][0]
    span = format_size(within[0][0].asked) + (
        f"-{format_size(within[-1][0].asked)}" if len(within) > 1 else ""
    )
    work = f"{first.operation}, {first.ranks} ranks" + (f", {span}" if first.asked else "")
    refusals = [point for pair in within for point in pair if point.reason]
    if refusals:
        return Target(work, None, limit.times, note=f"{refusals[0].subject}: {refusals[0].reason}")
    worst = min(within, key=lambda pair: ratio(pair) or 0.0)
    return Target(work, ratio(worst), limit.times, note=_times(worst))


def _times(pair: Sequence[Point]) -> str:
    own, peer = (point.seconds or 0.0 for point in pair)
    return f"{format_size(pair[0].asked)}: {own * 1e6:.1f} us, {pair[1].subject} {peer * 1e6:.1f} us"
