"""Islands as the ranks of a job find them, and what is refused when the job starts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dicomm
from dicomm.topology import Topology
from support.processes import run_job
from support.ranks import Ranks, run_ranks


def islands(topology: Topology) -> list[tuple[int, ...]]:
    return [island.ranks for island in topology.islands]


def test_without_vendors_all_ranks_are_one_island() -> None:
    topologies = run_ranks(3, lambda comm: comm.topology)
    assert topologies[0] == topologies[1] == topologies[2]
    (island,) = topologies[0].islands
    assert island.ranks == (0, 1, 2)
    assert island.library == ""
    (host,) = topologies[0].hosts
    assert host.ranks == (0, 1, 2)
    for rank in topologies[0].ranks:
        assert rank.version == dicomm.__version__
        assert rank.chip.vendor == "cpu"
        assert rank.chip.memory_bytes > 0
        assert "float32" in rank.chip.dtypes
        assert rank.nics == topologies[0].ranks[0].nics


@pytest.mark.parametrize(
    ("simulate", "expected"),
    [
        ("alpha:2,beta:2", [(0, 1), (2, 3)]),
        ("alpha,beta", [(0, 2), (1, 3)]),
        ("alpha:1,beta:3", [(0,), (1, 2, 3)]),
        ("gamma,alpha:2,beta", [(0,), (1, 2), (3,)]),
    ],
)
def test_islands_follow_from_brands(simulate: str, expected: list[tuple[int, ...]]) -> None:
    for topology in run_ranks(4, lambda comm: comm.topology, simulate=simulate):
        assert islands(topology) == expected
        for island in topology.islands:
            assert island.library == f"{island.vendor}-ccl"


def test_words_part_an_island_and_travel() -> None:
    words = ["left", "right", "left", ""]
    topologies = run_ranks(
        4,
        lambda comm: comm.topology,
        simulate="alpha",
        each=lambda rank: {"island": words[rank], "role": "reducer" if rank == 3 else "worker"},
    )
    for topology in topologies:
        assert islands(topology) == [(0, 2), (1,), (3,)]
        assert [rank.chip.island for rank in topology.ranks] == words
        assert [rank.chip.role for rank in topology.ranks] == ["worker"] * 3 + ["reducer"]


def test_a_split_numbers_islands_anew() -> None:
    def run(comm: dicomm.Communicator) -> tuple[list[str], list[tuple[int, ...]]]:
        part = comm.split(int(comm.rank < 1), -comm.rank)
        assert part is not None
        return [rank.chip.vendor for rank in part.topology.ranks], islands(part.topology)

    found = run_ranks(5, run, simulate="alpha:2,beta:2,gamma")
    assert found[0] == (["alpha"], [(0,)])
    for rank in range(1, 5):
        assert found[rank] == (["gamma", "beta", "beta", "alpha"], [(0,), (1, 2), (3,)])


def test_operations_work_whatever_the_islands() -> None:
    def run(comm: dicomm.Communicator) -> None:
        x = np.arange(5000, dtype=np.float32) + comm.rank
        comm.allreduce(x)
        np.testing.assert_array_equal(x, 4 * np.arange(5000, dtype=np.float32) + 6)

    run_ranks(4, run, each=lambda rank: {"island": f"island {rank % 2}"})


def refusals(tmp_path: Path, size: int, each: list[dict[str, Any]]) -> list[str]:
    """Starts a job that must be refused, and returns what each rank was told."""
    base = dicomm.Config(interface="127.0.0.1", init_timeout=20)

    def start(rank: int) -> str:
        config = replace(base, **each[rank])
        with pytest.raises(dicomm.InvalidArgument) as caught:
            dicomm.init(f"file://{tmp_path}", rank=rank, size=size, config=config)
        return str(caught.value)

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(start, range(size)))


@pytest.mark.usefixtures("leak_check")
def test_a_word_for_two_vendors_is_refused_on_every_rank(tmp_path: Path) -> None:
    each = [{"simulate": "alpha,alpha,beta", "island": "x" if rank != 1 else ""} for rank in range(3)]
    told = refusals(tmp_path, 3, each)
    for text in told:
        assert "island 'x' would hold alpha with alpha-ccl 1 on rank 0 (" in text
        assert "beta with beta-ccl 1 on rank 2 (" in text
        assert "DICOMM_ISLAND" in text


@pytest.mark.usefixtures("leak_check")
def test_two_kinds_of_chip_for_one_rank_are_refused() -> None:
    config = dicomm.Config(simulate="alpha", vendor="nvidia")
    with pytest.raises(dicomm.InvalidArgument, match="DICOMM_VENDOR='nvidia' names a real chip"):
        dicomm.init("file:///nowhere", rank=0, size=1, config=config)


class Corrupting:
    """A store in memory that changes what rank 1 publishes."""

    def __init__(self, change: Callable[[bytes], bytes]) -> None:
        self.change = change
        self.values: dict[str, bytes] = {}
        self.arrived = threading.Condition()

    def set(self, key: str, value: bytes) -> None:
        with self.arrived:
            self.values[key] = self.change(value) if key.endswith("/rank/1") else value
            self.arrived.notify_all()

    def get(self, key: str) -> bytes:
        return self.values[key]

    def check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)

    def wait(self, keys: list[str], limit: timedelta) -> None:
        with self.arrived:
            if not self.arrived.wait_for(lambda: self.check(keys), limit.total_seconds()):
                raise TimeoutError(keys)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda record: record, ""),
        (lambda record: record[:-1], "rank 1 published a record that is cut"),
        (lambda record: record + b"x", "rank 1 published a record that is cut, too long"),
        (lambda record: b"", "rank 1 published a record that is cut"),
        (lambda record: b"\xff" * len(record), "rank 1 published a record that is cut"),
        (lambda record: b"\x09" + record[1:], r"rank 1 \(.+\) speaks protocol 9 .* install the same dicomm"),
        (lambda record: record.replace(b"worker", b"banker"), "rank 1 published a record that is cut"),
        (
            lambda record: record.replace(dicomm.__version__.encode(), b"9.9.9", 1),
            r"rank 1 \(.+\) has dicomm 9\.9\.9 and this rank",
        ),
    ],
)
@pytest.mark.usefixtures("leak_check")
def test_a_record_that_makes_no_sense_is_refused_on_every_rank(
    change: Callable[[bytes], bytes], message: str
) -> None:
    store = Corrupting(change)
    config = dicomm.Config(interface="127.0.0.1", init_timeout=20)

    def start(rank: int) -> None:
        if not message:
            dicomm.init(store, rank=rank, size=3, config=config).close()
            return
        with pytest.raises(dicomm.Protocol, match=message):
            dicomm.init(store, rank=rank, size=3, config=config)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(start, range(3)))


def test_the_environment_decides() -> None:
    source = """
        say([(i.vendor, *i.ranks) for i in comm.topology.islands])
        comm.barrier()
        comm.close()
    """
    for text in run_job(3, source, env={"DICOMM_SIMULATE": "alpha:1,beta:2"}):
        assert "[('alpha', 0), ('beta', 1, 2)]" in text


def test_counters_come_without_the_topology() -> None:
    with Ranks(2) as ranks:
        assert "topology" not in ranks.run(lambda comm: comm.stats())[0]
