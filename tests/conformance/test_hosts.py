"""Two hosts, for which two network namespaces of this machine stand: shm inside, tcp between."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

import namespaces
from support.processes import Job

pytestmark = pytest.mark.skipif(namespaces.missing() != "", reason=namespaces.missing())


@pytest.fixture
def hosts() -> Iterator[tuple[str, str]]:
    """Names of two namespaces with 198.51.100.1 and .2, 2001:db8::1 and ::2, one wire between them."""
    with namespaces.two_hosts() as names:
        for number, name in enumerate(names, 1):
            address = f"2001:db8::{number}/64"
            command = ["ip", "-n", name, "addr", "add", address, "dev", namespaces.WIRE, "nodad"]
            subprocess.run(command, check=True, capture_output=True, timeout=20)
        yield names


@pytest.mark.parametrize("address", ["198.51.100.1", "[2001:db8::1]"])
def test_the_path_follows_the_place(hosts: tuple[str, str], address: str) -> None:
    """Three ranks on the first host, one on the second: uneven on purpose."""
    source = """
        for count in (1, 300_000):
            x = np.full(count, comm.rank + 1, np.float32)
            comm.allreduce(x)
            assert (x == 10).all()
        rows = np.zeros((4, 50_000), np.int32)
        comm.alltoall(np.repeat(np.arange(4, dtype=np.int32) + 10 * comm.rank, 50_000), rows)
        assert (rows == np.arange(4)[:, None] * 10 + comm.rank).all()
        say({peer["rank"]: peer["path"] for peer in comm.stats()["peers"] if peer["rank"] != comm.rank})
        comm.barrier()
        comm.close()
    """
    env = {"DICOMM_INIT": f"tcp://{address}:29471", "DICOMM_INTERFACE": ""}
    place = [hosts[0], hosts[0], hosts[0], hosts[1]]
    with Job(4, source, env=env, launch=lambda rank: ["ip", "netns", "exec", place[rank]]) as job:
        for rank in range(4):
            expected = {r: "shm" if place[r] == place[rank] else "tcp" for r in range(4) if r != rank}
            job.wait_for(rank, str(expected), timeout=40)
        for process in job.processes:
            assert process.wait(20) == 0


@pytest.mark.parametrize("place", ["aabb", "aaab", "abab"])
def test_each_byte_crosses_once(hosts: tuple[str, str], place: str) -> None:
    """An allreduce moves its size over the wire each way, whatever the ranks. All results are checked."""
    count = 3 << 20  # of 4 bytes
    source = f"""
        def crossing():
            return sum(p["bytes_sent"] for p in comm.stats()["peers"] if p["path"] == "tcp")
        x = np.arange({count}, dtype=np.float32) % 97 + comm.rank
        want = (np.arange({count}, dtype=np.float32) % 97) * 4 + 6
        comm.allreduce(np.ones(1, np.float32))
        before = crossing()
        comm.allreduce(x)
        assert (x == want).all()
        say("sent", crossing() - before, "bytes")
        rows = np.zeros((4, {count // 4}), np.int32)
        comm.allgather(np.full({count // 4}, comm.rank, np.int32), rows)
        assert (rows == np.arange(4)[:, None]).all()
        mine = np.empty({count // 4}, np.float64)
        comm.reduce_scatter(np.arange({count // 4} * 4, dtype=np.float64), mine)
        assert (mine == 4.0 * (np.arange({count // 4}) + comm.rank * {count // 4})).all()
        for root in (0, 3):
            y = np.full({count}, comm.rank, np.int32)
            comm.broadcast(y, root)
            assert (y == root).all()
            total = np.zeros({count}, np.int64)
            comm.reduce(np.full({count}, comm.rank, np.int64), total, root=root)
            assert (total == (6 if comm.rank == root else 0)).all()
        comm.barrier()
        say("done")
        comm.barrier()
        comm.close()
    """
    env = {"DICOMM_INIT": "tcp://198.51.100.1:29472", "DICOMM_INTERFACE": ""}
    host = {"a": hosts[0], "b": hosts[1]}
    with Job(4, source, env=env, launch=lambda rank: ["ip", "netns", "exec", host[place[rank]]]) as job:
        sent = {"a": 0, "b": 0}
        for rank in range(4):
            job.wait_for(rank, "done", timeout=50)
            words = job.output(rank).split()
            sent[place[rank]] += int(words[words.index("sent") + 1])
        assert sent == {"a": 4 * count, "b": 4 * count}
        for process in job.processes:
            assert process.wait(20) == 0
