"""A job of dicomm, one rank on each host of the machine."""

from __future__ import annotations

import shlex
import sys

import pytest

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


def ranks(*python: str) -> str:
    """The shell command that runs Python with these arguments as rank 0 on hostA and rank 1 on hostB."""
    command = shlex.join([sys.executable, *python])
    return f"""
        export DICOMM_INIT=tcp://198.51.100.1:29471 DICOMM_SIZE=2
        DICOMM_RANK=0 ip netns exec hostA {command} &
        DICOMM_RANK=1 ip netns exec hostB {command} || exit
        wait $!
    """


def job(source: str) -> str:
    return ranks("-c", source)


def test_allreduce_between_the_hosts(vm: Machine) -> None:
    done = vm.run(job(ALLREDUCE))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "['rdma-direct']\n['rdma-direct']\n"
