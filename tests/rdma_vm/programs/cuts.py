"""One of two ranks whose RDMA wire is cut again and again while messages are under way.

CUT: "silence" or "down", see cards.Wire. ROUNDS: of cuts, each on the host and at the moment that SEED gives.
The socket between the ranks is on another wire. Messages have consecutive numbers, and what comes is compared
with what was sent: nothing may be lost, come twice or overtake.
"""

from __future__ import annotations

import os
import random
import threading
import time

import numpy as np
from rdma_vm.programs.cards import Wire, other, say, wait_for_path

import dicomm

CUTS_OF_A_CONTEXT = 2  # queue pairs are made again after pauses that double, from nothing and a second
COUNTS = (1, 50, 2000, 20_000, 300_000)  # of 4 bytes


def content(rank: int, number: int, count: int) -> np.ndarray:
    return np.arange(count, dtype=np.uint32) * np.uint32(2654435761) + np.uint32(2 * number + rank)


class Traffic:
    """Random messages and reductions; both ranks make the same choices."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.number = 0

    def run(self, comm: dicomm.Communicator) -> None:
        peer = 1 - comm.rank
        numbers = range(self.number, self.number + 12)
        self.number += 12
        ours, theirs = ([self.random.choice(COUNTS) for _ in numbers] for _ in range(2))
        if comm.rank == 1:
            ours, theirs = theirs, ours
        got = [np.zeros(count, np.uint32) for count in theirs]
        requests = [comm.irecv(buffer, peer) for buffer in got]
        requests += [
            comm.isend(content(comm.rank, n, count), peer) for n, count in zip(numbers, ours, strict=True)
        ]
        total = content(comm.rank, self.number, self.random.choice(COUNTS))
        comm.allreduce(total)
        for request in requests:
            request.wait()
        for n, buffer in zip(numbers, got, strict=True):
            assert (buffer == content(peer, n, buffer.size)).all(), f"message {n} of {buffer.size}"
        wanted = content(0, self.number, total.size) + content(1, self.number, total.size)
        assert (total == wanted).all(), f"sum {self.number} of {total.size}"


def main() -> None:
    kind, rounds, seed = os.environ["CUT"], int(os.environ["ROUNDS"]), int(os.environ["SEED"])
    choices = random.Random(seed)
    counts = {"cuts": 0, "in_traffic": 0, "links": 0, "fallbacks": 0, "direct_bytes": 0, "socket_bytes": 0}
    while counts["cuts"] < rounds:
        with dicomm.init() as comm:
            wire = Wire(comm.rank)
            traffic = Traffic(seed + counts["cuts"])
            wait_for_path(comm, "rdma-direct")
            for _ in range(2):  # the first is slower
                start = time.monotonic()
                traffic.run(comm)
                usual = np.array([time.monotonic() - start])
            comm.broadcast(usual, 0)
            for _ in range(CUTS_OF_A_CONTEXT):
                victim, delay = choices.randrange(2), choices.random() * float(usual[0])
                before = other(comm)["fallbacks"]
                timer = threading.Timer(delay, wire.silence if kind == "silence" else wire.down)
                if comm.rank == victim:
                    timer.start()
                traffic.run(comm)
                counts["in_traffic"] += other(comm)["fallbacks"] > before
                if comm.rank == victim:
                    timer.join()
                traffic.run(comm)  # at the latest this one meets it
                comm.barrier()
                wire.heal()
                wait_for_path(comm, "rdma-direct")
                counts["cuts"] += 1
            traffic.run(comm)
            for name in ("links", "fallbacks", "direct_bytes", "socket_bytes"):
                counts[name] += other(comm)[name]
            comm.barrier()  # who leaves takes the counters along
            wire.close()
    say(counts)


if __name__ == "__main__":
    main()
