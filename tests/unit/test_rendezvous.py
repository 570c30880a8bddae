"""Every way in which ranks may find each other."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import dicomm
from dicomm import Config, InvalidArgument, stores
from dicomm.rendezvous import meet
from support.leaks import no_leaks

SETTINGS = Config(interface="127.0.0.1", init_timeout=20)
SUM = """
import dicomm, numpy as np
for _ in range(2):  # init may be called again
    with dicomm.init() as comm:
        x = np.full(10, comm.rank + 1)
        comm.allreduce(x)
        assert (x == comm.size * (comm.size + 1) // 2).all()
print("sum", x[0], flush=True)
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def in_threads(size: int, source: object, times: int = 1, **more: object) -> None:
    failures: list[BaseException] = []

    def rank_main(rank: int) -> None:
        try:
            mine = source(rank) if callable(source) else source
            for _ in range(times):
                with dicomm.init(mine, rank=rank, size=size, config=SETTINGS, **more) as comm:
                    value = np.ones(3)
                    comm.allreduce(value)
                    assert value[0] == size
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=rank_main, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not failures, failures


def test_one_rank_needs_nothing() -> None:
    with no_leaks(), dicomm.init(config=SETTINGS) as comm:
        assert (comm.rank, comm.size) == (0, 1)
        value = np.arange(3.0)
        comm.allreduce(value)
        assert value.tolist() == [0, 1, 2]


def test_address_served_by_rank_0_and_init_again() -> None:
    with no_leaks():
        in_threads(3, f"tcp://127.0.0.1:{free_port()}", times=3)
        stores.close_all()


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 on this host")
def test_ipv6_address() -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
            port = probe.getsockname()[1]
    except OSError:
        pytest.skip("no IPv6 loopback address on this host")
    with no_leaks():
        in_threads(2, f"tcp://[::1]:{port}")
        stores.close_all()


def test_directory(tmp_path: Path) -> None:
    with no_leaks():
        in_threads(3, f"file://{tmp_path}/job", times=2)


def test_torch_stores(tmp_path: Path) -> None:
    distributed = pytest.importorskip("torch.distributed")
    in_threads(3, distributed.HashStore(), times=2)
    # These serve one thread at a time: a store object per rank, as in processes.
    path = str(tmp_path / "store")
    in_threads(2, lambda rank: distributed.PrefixStore("group", distributed.FileStore(path, 2)), times=2)
    server = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    in_threads(
        2,
        lambda rank: distributed.TCPStore("127.0.0.1", server.port, is_master=False, wait_for_workers=False),
    )


def test_missing_ranks_through_a_torch_store() -> None:
    distributed = pytest.importorskip("torch.distributed")
    config = Config(interface="127.0.0.1", init_timeout=0.5)
    with pytest.raises(dicomm.TimedOut, match=r"ranks? .*1"):
        dicomm.init(distributed.HashStore(), rank=0, size=2, config=config)


def test_ranks_without_a_common_path_learn_it_at_once(tmp_path: Path) -> None:
    def one(rank: int) -> str:
        config = replace(SETTINGS, paths=("shm", "tcp")[rank])
        with pytest.raises(dicomm.DicommError) as caught:
            dicomm.init(f"file://{tmp_path}/store", rank=rank, size=2, config=config)
        assert not isinstance(caught.value, dicomm.TimedOut)
        return str(caught.value)

    with ThreadPoolExecutor(2) as threads:
        for text in threads.map(one, range(2)):
            assert "no transport reaches" in text


def test_a_store_that_fails_is_the_cause_of_the_error() -> None:
    class Broken:
        def set(self, key: str, value: bytes) -> None:
            raise RuntimeError("the disk is full")

        def get(self, key: str) -> bytes:
            return b""

    with pytest.raises(dicomm.DicommError) as caught:
        dicomm.init(Broken(), rank=0, size=2, config=SETTINGS)
    assert "the disk is full" in repr(caught.value.__cause__)


@pytest.mark.parametrize("restart", ["0", "3"])
def test_torchrun_variables(restart: str) -> None:
    port = free_port()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SUM],
            env={
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": "3",
                "LOCAL_RANK": str(rank),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port - 1),
                "TORCHELASTIC_RESTART_COUNT": restart,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(3)
    ]
    outputs = [process.communicate(timeout=40)[0] for process in processes]
    assert all(output.strip() == "sum 6" for output in outputs), outputs


@pytest.mark.mpi
def test_mpirun() -> None:
    pytest.importorskip("mpi4py")
    mpirun = Path(sys.executable).parent / "mpirun"
    if not mpirun.exists():
        pytest.skip("no mpirun beside this Python")
    command = [mpirun, "--allow-run-as-root", "--oversubscribe", "-n", "3", sys.executable, "-c", SUM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("sum 6") == 3


def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(dicomm.DicommError, match=str(port)):
            dicomm.init(f"tcp://127.0.0.1:{port}", rank=0, size=2, config=SETTINGS)


@pytest.mark.parametrize(
    ("source", "rank", "size", "text"),
    [
        ("udp://x:1", 0, 2, "neither tcp"),
        ("tcp://x", 0, 2, "tcp://HOST:PORT"),
        ("tcp://::1:80:a", 0, 2, "tcp://HOST:PORT"),
        ("tcp://x:1", None, None, "rank and size"),
        ("tcp://x:1", 2, 2, "rank 2"),
        (None, 1, 2, "need a place to meet"),
        (3.5, 0, 2, "source is a float"),
    ],
)
def test_bad_arguments(source: object, rank: int | None, size: int | None, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        dicomm.init(source, rank=rank, size=size, config=SETTINGS)


def test_sources_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "a", "MASTER_PORT": "5"}.items():
        monkeypatch.setenv(name, value)
    found = meet(None, None, None, "", Config())
    assert (found.url, found.rank, found.size) == ("tcp://a:6", 1, 4)
    assert meet(None, None, None, "", Config(port=99)).url == "tcp://a:99"
    assert meet(None, None, None, "", Config(init="tcp://b:7")).url == "tcp://b:7"
    assert meet("tcp://c:8", 0, 2, "", Config(init="tcp://b:7")).url == "tcp-server://c:8"
    assert meet("tcp://c:8", 1, 2, "", Config()).secret == meet("tcp://c:8", 0, 2, "", Config()).secret
    assert meet("tcp://c:8", 1, 2, "j", Config()).secret != meet("tcp://c:8", 1, 2, "", Config()).secret
    assert meet("tcp://c:8", 1, 2, "", Config(secret="given")).secret == b"given"
