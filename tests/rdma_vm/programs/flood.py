"""One of two ranks: 0 sends many small messages while 1 is stopped, then while it only does not receive."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import numpy as np
from rdma_vm.programs.cards import card_counters, other, say, wait_for_path

import dicomm

MESSAGES = 1500
SECONDS = 2.0  # without receiving
SIGNS = Path("/dev/shm")  # files here tell rank 0 what rank 1 is at: the hosts are of one machine


def content(number: int) -> np.ndarray:
    return np.arange(number % 50 + 1, dtype=np.int32) + 1000 * number


def send_all(comm: dicomm.Communicator) -> None:
    while not (SIGNS / "away").exists():
        time.sleep(0.01)
    requests = [comm.isend(content(n), 1, tag=5) for n in range(MESSAGES)]
    for request in requests:
        request.wait()


def receive_all(comm: dicomm.Communicator) -> None:
    for n in range(MESSAGES):
        wanted = content(n)
        got = np.zeros_like(wanted)
        comm.recv(got, 0, tag=5)
        assert (got == wanted).all(), f"message {n}: {got}"


def be_stopped() -> None:
    me = os.getpid()
    wait = f"kill -STOP {me}; touch away; sleep {SECONDS}; touch back; kill -CONT {me}"
    subprocess.run(["sh", "-c", wait], cwd=SIGNS, check=True)


def main() -> None:
    with dicomm.init() as comm:
        card = "rxe" + "AB"[comm.rank]
        wait_for_path(comm, "rdma-direct")
        comm.barrier()
        if comm.rank == 0:
            send_all(comm)
            assert (SIGNS / "back").exists(), "all of it was taken while nobody was there"
            send_all(comm)
        else:
            be_stopped()
            receive_all(comm)
            time.sleep(SECONDS)
            receive_all(comm)
        comm.barrier()
        say({"path": other(comm)["path"], "fallbacks": other(comm)["fallbacks"], "card": card_counters(card)})
        comm.barrier()


if __name__ == "__main__":
    main()
