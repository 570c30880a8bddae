"""One host, rank to rank, through the C ABI and the Python API, against the bare limits of this machine."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict

import programs
from jobs import Job
from measure import Budget, compare
from programs import median
from report import Section, share, times

NAME = "one host, rank to rank, against bare memory"
MESSAGE, BYTES = 8, 64 << 20
# dicomm waits as the limit does: polling for a second before it sleeps, or never polling.
WAITS = (("flag_spin", "spinning", 1_000_000_000), ("flag_futex", "sleeping", 0))


def run(budget: Budget) -> Section:
    """Launches of the two C programs alternate; each takes a fraction of a second."""
    section = Section(NAME)
    limits, abi = programs.build("limits"), programs.build("through_abi", with_dicomm=True)
    bare_message = None
    for limit, word, spin_ns in WAITS:
        bare, own = programs.alternate(
            budget.launches, [limits, "-b", 3, limit], [abi, "-b", 3, "-p", spin_ns, "pingpong"]
        )
        work = f"8 bytes one way, C ABI {word}, against a flag {word}"
        section.targets.append(times(work, median(own, "pingpong"), median(bare, limit), at_most=2))
        section.rows += bare + own
        bare_message = bare_message or median(bare, limit)
    bare, own = programs.alternate(
        budget.launches,
        [limits, "-b", 3, "-s", BYTES, "memcpy", "vm_readv"],
        [abi, "-b", 3, "-s", BYTES, "stream"],
    )
    section.rows += bare + own
    for name, limit in (("process_vm_readv", "vm_readv"), ("memcpy", "memcpy")):
        work = f"64 MiB one way, C ABI, against one {name}"
        section.targets.append(share(work, median(own, "stream"), median(bare, limit), at_least=90))
    with ExitStack() as stack:
        jobs = [stack.enter_context(Job("dicomm", 2, pinned=True))]
        (message,) = compare(jobs, "latency", MESSAGE, budget)
        (large,) = compare(jobs, "latency", BYTES, budget)
    section.targets.append(
        times("8 bytes one way, Python API, against a flag spinning", message.seconds, bare_message)
    )
    section.targets.append(
        share("64 MiB one way, Python API, against one memcpy", large.seconds, median(bare, "memcpy"))
    )
    section.rows += [asdict(message), asdict(large)]
    section.wrong = message.wrong + large.wrong
    return section
