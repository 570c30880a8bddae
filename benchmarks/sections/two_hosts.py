"""Two hosts: against bare sockets over the same wire, and against the wire itself when it is a slow one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import namespaces
import programs
from jobs import Job
from measure import Budget, Point, compare
from namespaces import ADDRESSES, WIRE
from programs import Seconds, median
from report import Section, share, times

NAME = "two hosts (network namespaces), against bare sockets"
STREAM = 64 << 20
VECTOR, MEGABITS = 32 << 20, 1000
# dicomm waits as the bare socket does: polling for a second before it sleeps, or never polling.
WAITS = (("tcp_poll", "polling", 1_000_000_000), ("tcp", "sleeping", 0))
# operation -> how many vectors must cross the wire in each direction at the least, with 2+2 ranks. allreduce:
# one half of each host's sum goes there to be completed, and the other, completed, goes back for it.
# allgather: half of the result stands on either host. reduce_scatter: each host lacks the other's sum for its
# own half. alltoall: both ranks of a host send half of their vectors across.
CROSSING = {"allreduce": 1.0, "allgather": 0.5, "reduce_scatter": 0.5, "alltoall": 1.0}


def run(budget: Budget) -> Section:
    reason = namespaces.missing()
    if reason:
        return Section(NAME, skipped=reason)
    section = Section(NAME)
    with namespaces.two_hosts() as names:
        _fast_wire(section, names, budget)
        namespaces.shape(names, MEGABITS)
        _slow_wire(section, names, budget)
    return section


def _fast_wire(section: Section, names: tuple[str, str], budget: Budget) -> None:
    """The C programs alternate."""
    limits, abi = programs.build("limits"), programs.build("through_abi", with_dicomm=True)
    place = ["-A", names[0], "-B", names[1], "-H", ADDRESSES[1]]
    for limit, word, spin_ns in WAITS:
        bare, own = programs.alternate(
            budget.launches,
            [limits, *place, "-b", 3, limit],
            [abi, *place, "-b", 3, "-p", spin_ns, "pingpong"],
        )
        work = f"8 bytes there and back, C ABI {word}, against a socket {word}"
        section.targets.append(times(work, median(own, "pingpong"), median(bare, limit), at_most=1.3))
        section.rows += bare + own
    bare, own = programs.alternate(
        budget.launches,
        [limits, *place, "-b", 3, "-s", STREAM, "tcp_stream"],
        [abi, *place, "-b", 3, "-s", STREAM, "stream"],
    )
    work = "64 MiB stream, C ABI, against a socket"
    section.targets.append(share(work, median(own, "stream"), median(bare, "tcp_stream"), at_least=97))
    section.rows += bare + own


def _slow_wire(section: Section, names: tuple[str, str], budget: Budget) -> None:
    """2+2 ranks. The bare stream over the same wire is measured before and after each operation."""
    environment = {"DICOMM_INTERFACE": WIRE, "GLOO_SOCKET_IFNAME": WIRE}
    jobs = [
        Job(subject, 4, prefix=lambda rank: namespaces.enter(names[rank // 2]), environment=environment)
        for subject in ("dicomm", "torch-dicomm", "torch-gloo")
    ]
    with ExitStack() as stack:
        for job in jobs:
            stack.enter_context(job)
        for points, bare in over_the_wire(section, names, jobs, budget):
            _shares(section, points, bare)


def over_the_wire(
    section: Section, names: tuple[str, str], jobs: Sequence[Job], budget: Budget
) -> Iterator[tuple[list[Point], list[Seconds]]]:
    """Every operation of CROSSING on the jobs, the first two of which are dicomm's, and bare streams of what
    must cross, before and after."""
    for operation, vectors in CROSSING.items():
        crossing = round(vectors * VECTOR)
        before = _bare(names, crossing, budget)
        points = compare(jobs, operation, VECTOR, budget)
        bare = before + _bare(names, crossing, budget)
        section.rows += [asdict(point) for point in points] + bare
        section.wrong += points[0].wrong + points[1].wrong
        yield points, bare


def _bare(names: tuple[str, str], count: int, budget: Budget) -> list[Seconds]:
    place = ["-A", names[0], "-B", names[1], "-H", ADDRESSES[1]]
    words: list[str | int] = [*place, "-b", budget.least, "-s", count, "tcp_stream", "tcp_duplex"]
    command: list[str | int | Path] = [programs.build("limits"), *words]
    return programs.alternate(1, command)[0]


def _shares(section: Section, points: Sequence[Point], bare: list[Seconds]) -> None:
    """Targets against a stream one way; beside it one each way, whose answers share the wire."""
    own, own_torch, gloo = points
    one_way, both_ways = median(bare, "tcp_stream"), median(bare, "tcp_duplex")
    work = f"{own.operation} of 32 MiB, 2+2 ranks, 1 Gbit/s"
    section.targets += [
        share(f"{work}, Python API", own.seconds, one_way, at_least=97.6),
        share(f"{work}, torch", own_torch.seconds, one_way),
        share(f"{work}, gloo", gloo.seconds, one_way),
        share(f"{work}, bare sockets both ways", both_ways, one_way),
    ]
