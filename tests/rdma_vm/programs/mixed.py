"""One of four ranks, two on each host, that simulate chips of two brands, in three layouts."""

from __future__ import annotations

import dataclasses
import json
import sys

import numpy as np

import dicomm
from support.cells import check_cell
from support.reference import same_bits, values

# Rank of each process (0 and 1 are on host A, 2 and 3 on host B), and brand by rank.
LAYOUTS = {
    "islands are hosts": ((0, 1, 2, 3), "alpha:2,beta:2"),
    "islands are hosts, interleaved": ((0, 2, 1, 3), "alpha,beta"),
    "islands across hosts": ((0, 1, 2, 3), "alpha,beta"),
}
OPERATIONS = ("allreduce", "allgather", "reduce_scatter", "alltoall", "broadcast")


def exchange(comm: dicomm.Communicator, count: int) -> None:
    """Between any two ranks."""
    sent = [values("float32", count, comm.rank * 16 + peer) for peer in range(comm.size)]
    got = [np.zeros(count, np.float32) for _ in range(comm.size)]
    requests = [comm.irecv(got[peer], peer, tag=peer) for peer in range(comm.size)]
    requests += [comm.isend(sent[peer], peer, tag=comm.rank) for peer in range(comm.size)]
    for request in requests:
        request.wait()
    for peer in range(comm.size):
        assert same_bits(got[peer], values("float32", count, peer * 16 + comm.rank))


def run(name: str, process: int, port: int) -> None:
    ranks, brands = LAYOUTS[name]
    config = dataclasses.replace(dicomm.Config.from_environment(), simulate=brands)
    with dicomm.init(f"tcp://198.51.100.1:{port}", rank=ranks[process], config=config) as comm:
        for count in (1000, 140_001):
            for operation in OPERATIONS:
                wrong = check_cell(comm, operation, "float32", "sum", count)
                assert not wrong, wrong
            exchange(comm, count)
        stats = comm.stats()
        here = stats["host_of_rank"][comm.rank]
        peers = [
            {
                "near": stats["host_of_rank"][peer["rank"]] == here,
                "path": peer["path"],
                "sent": peer["bytes_sent"],
                "direct": peer.get("direct_bytes", 0),
            }
            for peer in stats["peers"]
            if peer["rank"] != comm.rank
        ]
        islands = [[list(island.ranks), list(island.hosts)] for island in comm.topology.islands]
        line = {"layout": name, "islands": islands, "library_calls": stats["ccl"]["calls"], "peers": peers}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
        comm.barrier()


if __name__ == "__main__":
    this = dicomm.Config.from_environment().rank
    assert this is not None
    for port, layout in enumerate(LAYOUTS, 29472):  # a rank that changes is another job
        run(layout, this, port)
