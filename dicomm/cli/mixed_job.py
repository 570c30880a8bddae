"""What each rank of `dicomm demo --mixed` runs first: the islands, and the way that one allreduce goes.

Launched by itself:

    DICOMM_SIMULATE=alpha:2,beta:2 torchrun --nproc-per-node 4 -m dicomm.cli.mixed_job
"""

from __future__ import annotations

from typing import Any

import numpy as np

import dicomm
from dicomm.topology import table

_COUNT = 1 << 16  # 256 KiB: few enough steps to read them


def main() -> None:
    with dicomm.init(name="demo") as comm:
        if comm.rank == 0:
            print(comm.topology, end="\n\n", flush=True)
        given = np.arange(_COUNT, dtype=np.float32) % 1000 + comm.rank
        got = np.empty_like(given)
        comm.barrier()
        before = counters(comm)
        comm.allreduce(given, got)
        row = difference(before, counters(comm))
        wrong = int((got != (given - comm.rank) * comm.size + comm.size * (comm.size - 1) // 2).sum())
        rows = comm.gather_object((comm.rank, wrong, row))
        if rows is not None:
            report(comm, rows)
        comm.barrier()


def counters(comm: dicomm.Communicator) -> dict[str, list[int]]:
    """Way -> [how often, bytes] of what this rank started: messages by path, calls, copies."""
    stats = comm.stats()
    found: dict[str, list[int]] = {}
    for peer in stats["peers"]:
        way = found.setdefault(peer["path"], [0, 0])
        way[0] += peer["messages_sent"]
        way[1] += peer["bytes_sent"]
    if library := stats["ccl"]:
        found["ccl"] = [library["calls"], library["bytes"]]
    if chip := stats["context"]["chip"]:
        found["copies"] = [chip["bytes_to_host"], chip["bytes_to_chip"]]
    return found


def difference(before: dict[str, list[int]], after: dict[str, list[int]]) -> dict[str, list[int]]:
    """What came in between."""
    return {
        way: [now - then for now, then in zip(numbers, before.get(way, [0, 0]), strict=True)]
        for way, numbers in after.items()
    }


def report(comm: dicomm.Communicator, rows: list[Any]) -> None:
    """The schedule, and what every rank did, as a table. SystemExit when a result was wrong."""
    print(comm.explain("allreduce", _COUNT).rstrip())
    print("\nWhat each rank did for it:\n")
    paths = sorted({way for row in rows for way in row[2]} - {"ccl", "copies"})
    lines = [["rank", "chip", "library calls", "of bytes", "chip to host", "host to chip"]]
    lines[0] += [f"{path} messages, bytes sent" for path in paths]
    for rank, _, ways in rows:
        calls = [str(number) for number in ways["ccl"]] if "ccl" in ways else ["-", "-"]
        copies = [str(number) for number in ways["copies"]] if "copies" in ways else ["-", "-"]
        sent = ["{}, {}".format(*ways[path]) if path in ways else "-" for path in paths]
        lines.append([str(rank), comm.topology.ranks[rank].chip.vendor, *calls, *copies, *sent])
    print("\n".join(table(lines)))
    wrong = sum(row[1] for row in rows)
    print(f"\n{wrong} wrong elements on all ranks together", flush=True)
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
