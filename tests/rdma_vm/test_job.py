"""Jobs of dicomm between the hosts of the machine."""

from __future__ import annotations

import pytest

from rdma_vm.jobs import PROGRAMS, job, said
from rdma_vm.machine import Machine

pytestmark = [pytest.mark.rdma_vm, pytest.mark.timeout(600)]

ALLREDUCE = """
import sys
import numpy as np
import dicomm
comm = dicomm.init()
for count in (1, 100_000):
    x = np.arange(count, dtype=np.float32) + comm.rank
    comm.allreduce(x)
    assert (x == 2 * np.arange(count, dtype=np.float32) + 1).all()
paths = [peer["path"] for peer in comm.stats()["peers"] if peer["rank"] != comm.rank]
sys.stdout.write(f"{paths}\\n")
comm.barrier()
comm.close()
"""


def test_allreduce_between_the_hosts(vm: Machine) -> None:
    done = vm.run(job(ALLREDUCE))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "['rdma-direct']\n['rdma-direct']\n"


def test_two_islands_of_two_between_the_hosts(vm: Machine) -> None:
    """Simulated brands. The ranks compare all results with numpy's."""
    command = "export DICOMM_PATHS='shm>rdma-direct'\n" + job(PROGRAMS / "mixed.py", "AABB")
    ranks = said(vm, command, 590)
    islands = {
        "islands are hosts": [[[0, 1], [0]], [[2, 3], [1]]],
        "islands are hosts, interleaved": [[[0, 2], [0]], [[1, 3], [1]]],
        "islands across hosts": [[[0, 2], [0, 1]], [[1, 3], [0, 1]]],
    }
    assert sorted(rank["layout"] for rank in ranks) == sorted(4 * list(islands))
    for rank in ranks:
        assert rank["islands"] == islands[rank["layout"]]
        assert rank["library_calls"] > 0
        assert len(rank["peers"]) == 3
        for peer in rank["peers"]:
            assert peer["path"] == ("shm" if peer["near"] else "rdma-direct")
            assert peer["sent"] > 1e6
            assert peer["direct"] > 1e6 or peer["near"]
