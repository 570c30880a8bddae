"""What this machine can do at best; no targets, these are the bounds of the others."""

from __future__ import annotations

import programs
from measure import Budget
from report import Section, Target

NAME = "limits"

MESSAGES = {
    "flag_spin": "8 bytes one way, flag in shared memory, spinning",
    "flag_futex": "8 bytes one way, flag in shared memory, sleeping on a futex",
    "unix": "8 bytes one way, unix socket, blocking",
    "unix_poll": "8 bytes one way, unix socket, polling",
    "tcp": "8 bytes one way, TCP over loopback, blocking",
    "tcp_poll": "8 bytes one way, TCP over loopback, polling",
}
BYTES = 64 << 20
TRANSFERS = {
    "unix_stream": "64 MiB one way, unix socket",
    "tcp_stream": "64 MiB one way, TCP over loopback",
    "memcpy": "64 MiB, memcpy in one process",
    "vm_readv": "64 MiB, process_vm_readv from the other process",
    "add": "64 MiB, a += b in float32, one thread (bytes of b)",
}
CACHED_BYTES = 128 << 10


def run(budget: Budget) -> Section:
    section = Section(NAME)
    names = [*MESSAGES, *TRANSFERS, "add_cached"]
    found = programs.run(programs.build("limits"), "-b", 3 * budget.launches, "-s", BYTES, *names)
    for name, work in MESSAGES.items():
        section.targets.append(_figure(work, found[name], 1e6, "us"))
    for name, work in TRANSFERS.items():
        seconds = found[name]
        section.targets.append(_figure(work, BYTES / seconds if seconds else None, 1e-9, "GB/s"))
    cached = found["add_cached"]
    work = "128 KiB in the cache, a += b in float32, one thread"
    section.targets.append(_figure(work, CACHED_BYTES / cached if cached else None, 1e-9, "GB/s"))
    section.rows = [{"name": name, "seconds": seconds} for name, seconds in found.items()]
    return section


def _figure(work: str, value: float | None, scale: float, unit: str) -> Target:
    if value is None:
        return Target(work, None, unit=unit, note="refused on this machine")
    return Target(work, value * scale, unit=unit)
