"""Islands: 2+2 ranks of two simulated brands on two hosts, against the wire between them.

The composition is held against the slower of its parts alone: what must cross the wire, sent over bare
sockets, and the island's own library doing the inner part.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict

import namespaces
from jobs import Job
from measure import Budget, compare
from namespaces import WIRE
from programs import median
from report import Section, share
from sections.two_hosts import MEGABITS, VECTOR, over_the_wire

NAME = "islands: 2+2 ranks of two simulated brands on two hosts, 1 Gbit/s between them"
BRANDS = "alpha:2,beta:2"


def run(budget: Budget) -> Section:
    reason = namespaces.missing()
    if reason:
        return Section(NAME, skipped=reason)
    section = Section(NAME)
    with namespaces.two_hosts() as names, ExitStack() as stack:
        namespaces.shape(names, MEGABITS)
        common = {"DICOMM_INTERFACE": WIRE, "GLOO_SOCKET_IFNAME": WIRE}
        mixed = {**common, "DICOMM_SIMULATE": BRANDS}
        jobs = [
            Job(subject, 4, prefix=lambda rank: namespaces.enter(names[rank // 2]), environment=environment)
            for subject, environment in (("dicomm", mixed), ("torch-dicomm", mixed), ("torch-gloo", common))
        ]
        alone = Job("dicomm", 2, prefix=lambda rank: namespaces.enter(names[0]), environment=mixed)
        for job in (*jobs, alone):
            stack.enter_context(job)
        for points, bare in over_the_wire(section, names, jobs, budget):
            own, own_torch, gloo = points
            inner = compare([alone], own.operation, VECTOR, budget)
            section.rows += [asdict(point) for point in inner]
            wire = median(bare, "tcp_stream")
            parts = [time for time in (wire, inner[0].seconds) if time is not None]
            work = f"{own.operation} of 32 MiB, {BRANDS}, 1 Gbit/s"
            section.targets += [
                share(f"{work}, Python API", own.seconds, wire, at_least=97.6),
                share(f"{work}, torch", own_torch.seconds, wire),
                share(f"{work}, gloo", gloo.seconds, wire),
                share(f"{work}, against the slower part alone", own.seconds, max(parts, default=None)),
            ]
    return section
