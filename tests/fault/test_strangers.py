"""Port scans, garbage and wrong secrets, at start-up and during the run, change nothing."""

from __future__ import annotations

import dataclasses
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import psutil
import pytest

import dicomm
from dicomm import stores
from support.ranks import Ranks

pytestmark = pytest.mark.usefixtures("leak_check")

GARBAGE = [
    b"",
    b"\0",
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\xff" * 4096,
    bytes(range(256)) * 64,
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x5a" * 500,
]


def listeners() -> set[int]:
    found = psutil.Process().net_connections("tcp")
    return {c.laddr.port for c in found if c.status == psutil.CONN_LISTEN}


@contextmanager
def intruders(exclude: set[int]) -> Iterator[list[int]]:
    """Keeps scanning every port this process listens on; yields the list of connections made."""
    stop = threading.Event()
    made: list[int] = []

    def scan() -> None:
        held: list[socket.socket] = []
        while not stop.is_set():
            for port in listeners() - exclude:
                for data in GARBAGE:
                    try:
                        connection = socket.create_connection(("127.0.0.1", port), timeout=1)
                        connection.sendall(data)
                    except OSError:
                        continue
                    made.append(port)
                    if len(made) % 3 and len(held) < 20:
                        held.append(connection)  # stays silent and open
                    else:
                        connection.close()
            time.sleep(0.01)
        for connection in held:
            connection.close()

    thread = threading.Thread(target=scan)
    thread.start()
    try:
        yield made
    finally:
        stop.set()
        thread.join()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_strangers_at_start_up_and_during_the_run() -> None:
    before = listeners()
    with intruders(before) as made:
        try:
            with Ranks(3, source=f"tcp://127.0.0.1:{free_port()}", handshake_timeout=0.5) as ranks:

                def work(comm: dicomm.Communicator) -> None:
                    for i in range(100):
                        value = np.full(2000, comm.rank + i, np.int64)
                        comm.allreduce(value)
                        assert (value == 3 + 3 * i).all()
                        time.sleep(0.01)

                ranks.run(work)
                stats = [comm.stats() for comm in ranks.comms]
        finally:
            stores.close_all()
    assert made
    assert all(s["failed"] is None for s in stats)
    dropped = sum(s["context"]["transports"]["tcp"]["strangers_dropped"] for s in stats)
    assert dropped > 0, stats[0]["context"]


def test_a_rank_with_another_secret_is_kept_out() -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    settings = dicomm.Config(interface="127.0.0.1", init_timeout=1.5)
    errors: list[BaseException] = []

    def join(rank: int, secret: str) -> None:
        try:
            dicomm.init(address, rank=rank, size=2, config=dataclasses.replace(settings, secret=secret))
        except dicomm.DicommError as error:
            errors.append(error)

    threads = [threading.Thread(target=join, args=(r, s)) for r, s in enumerate(("right", "wrong"))]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    finally:
        stores.close_all()
    assert len(errors) == 2
    assert any(isinstance(error, dicomm.TimedOut) and "1" in str(error) for error in errors), errors
