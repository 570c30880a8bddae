"""One of two ranks with two cards each, of which one is deleted in the middle of an operation at the end."""

from __future__ import annotations

import subprocess
import threading

import numpy as np
from rdma_vm.programs.cards import card_counters, other, say, wait_for_path

import dicomm

STEPS = 6
COUNT = 500_000  # floats


def reduce(comm: dicomm.Communicator, step: int) -> None:
    x = np.arange(COUNT, dtype=np.float32) + comm.rank + step
    comm.allreduce(x)
    assert (x == 2 * np.arange(COUNT, dtype=np.float32) + 1 + 2 * step).all()


def main() -> None:
    with dicomm.init() as comm:
        host = "AB"[comm.rank]
        wait_for_path(comm, "rdma-direct")
        for step in range(STEPS):
            reduce(comm, step)
        comm.barrier()
        together = other(comm)
        packets = {f"packets{card}": card_counters(f"rxe{host}{card}")["sent_pkts"] for card in ("", "2")}
        for step in range(STEPS):
            if step == 1 and comm.rank == 0:
                delete = ["rdma", "link", "delete", "rxeA2"]
                threading.Timer(0.05, subprocess.run, [delete]).start()
            reduce(comm, step)
        after = other(comm)
        say(
            {
                "ports": len(comm.stats()["context"]["transports"]["rdma"]["ports"]),
                "together": together,
                **packets,
                "after": after,
            }
        )
        comm.barrier()


if __name__ == "__main__":
    main()
