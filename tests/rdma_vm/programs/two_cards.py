"""One of two ranks with two cards each. The second wire goes silent, goes down, and loses a card, each time
in the middle of an operation, and but for the last time it is made whole again."""

from __future__ import annotations

import contextlib
import subprocess
import threading

import numpy as np
from rdma_vm.programs.cards import Wire, card_counters, other, say, wait_for_cards

import dicomm

STEPS = 6
COUNT = 500_000  # floats


def reduce(comm: dicomm.Communicator, step: int) -> None:
    x = np.arange(COUNT, dtype=np.float32) + comm.rank + step
    comm.allreduce(x)
    assert (x == 2 * np.arange(COUNT, dtype=np.float32) + 1 + 2 * step).all()


def main() -> None:
    with dicomm.init() as comm, contextlib.closing(Wire(comm.rank)) as wire:
        host = "AB"[comm.rank]
        first, second = f"rxe{host}", f"rxe{host}2"
        said = {}

        def harm_in_the_middle(name: str, harm: threading.Timer) -> None:
            for step in range(STEPS):
                if step == 1 and comm.rank == 0:
                    harm.start()
                reduce(comm, step)
            wait_for_cards(comm, {first})
            before = card_counters(first)["sent_pkts"]
            direct = other(comm)["direct_bytes"]
            for step in range(STEPS):
                reduce(comm, step)
            packets = card_counters(first)["sent_pkts"] - before
            said[name] = other(comm) | {"packets": packets, "written": other(comm)["direct_bytes"] - direct}

        wait_for_cards(comm, {first, second})
        for step in range(STEPS):
            reduce(comm, step)
        comm.barrier()
        said["together"] = other(comm)
        packets = {card: card_counters(card)["sent_pkts"] for card in (first, second)}
        harm_in_the_middle("silent", threading.Timer(0.05, wire.silence))
        comm.barrier()
        wire.heal()
        comm.barrier()
        # Nobody tells that a network works again; a link that goes down and up tells.
        harm_in_the_middle("down", threading.Timer(0.05, wire.down))
        comm.barrier()
        wire.heal()
        wait_for_cards(comm, {first, second})
        for step in range(STEPS):
            reduce(comm, step)
        comm.barrier()
        said["whole"] = other(comm)
        delete = ["rdma", "link", "delete", "rxeA2"]
        harm_in_the_middle("deleted", threading.Timer(0.05, subprocess.run, [delete]))
        say(said | {"packets": list(packets.values())})
        comm.barrier()


if __name__ == "__main__":
    main()
