"""What a call costs in each layer: an allreduce of 4 bytes on one rank, which moves nothing anywhere."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict

import programs
from jobs import Job
from measure import Budget, compare
from programs import Seconds, median
from report import Section, Target

NAME = "what a call costs"
LAYERS = (("dicomm", "Python API", 3.0), ("torch-dicomm", "torch", 6.0))


def run(budget: Budget) -> Section:
    """The C program's launches alternate with rounds of the Python layers' blocks."""
    section = Section(NAME)
    abi = programs.build("through_abi", with_dicomm=True)
    bare: list[Seconds] = []
    layers = [job for job, _, _ in LAYERS]
    own: dict[str, list[float]] = {subject: [] for subject in [*layers, "torch-gloo"]}
    with ExitStack() as stack:
        jobs = [stack.enter_context(Job(subject, 1, pinned=True)) for subject in own]
        for _ in range(budget.launches):
            bare.append(programs.run(abi, "-b", 3, "call"))
            for point in compare(jobs, "allreduce", 4, budget):
                own[point.subject] += point.blocks
                section.rows.append(asdict(point))
    section.rows += bare
    call = median(bare, "call")
    assert call is not None  # the program fails where the call does
    section.targets.append(_microseconds("C ABI: start, wait, free", call))
    for subject, layer, limit in LAYERS:
        seconds = sorted(own[subject])[len(own[subject]) // 2]
        section.targets.append(_microseconds(f"{layer}, the whole call", seconds))
        section.targets.append(_microseconds(f"{layer}, above the C ABI", seconds - call, limit))
    gloo = sorted(own["torch-gloo"])[len(own["torch-gloo"]) // 2]
    section.targets.append(_microseconds("gloo through torch, the whole call", gloo))
    return section


def _microseconds(work: str, seconds: float, limit: float | None = None) -> Target:
    return Target(work, seconds * 1e6, limit, at_least=False, unit="us")
