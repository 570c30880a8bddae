"""Our own RDMA paths over Soft-RoCE: between two processes' worth of contexts, and between the hosts."""

from __future__ import annotations

import json
import re

import pytest

from rdma_vm.jobs import job, native_tests, needs_native_tests
from rdma_vm.machine import Machine

pytestmark = [pytest.mark.rdma_vm, pytest.mark.timeout(900)]

COLLECTIVES = """
import json
import sys
import numpy as np
import dicomm
comm = dicomm.init()
peer = 1 - comm.rank
for count in (1, 1000, 300_000):
    x = np.arange(count, dtype=np.float32) + comm.rank
    comm.allreduce(x)
    assert (x == 2 * np.arange(count, dtype=np.float32) + 1).all()
    mine = np.full(count, comm.rank, np.float32)
    both = np.empty(2 * count, np.float32)
    comm.allgather(mine, both)
    assert (both == np.repeat([0, 1], count)).all()
    theirs = np.empty(count, np.float32)
    requests = [comm.irecv(theirs, peer), comm.isend(mine, peer)]
    for request in requests:
        request.wait()
    assert (theirs == peer).all()
AFTER
counters = [entry for entry in comm.stats()["peers"] if entry["rank"] == peer][0]
sys.stdout.write(json.dumps({name: counters[name] for name in
                 ("path", "links", "fallbacks", "direct_bytes", "staged_bytes", "socket_bytes")}) + "\\n")
comm.barrier()
comm.close()
"""

# A card that goes away, in the middle of an operation. (What silence does is left to the double.)
CUT = """
import subprocess, threading
x = np.arange(500_000, dtype=np.float32) + comm.rank
for step in range(6):
    if step == 2 and comm.rank == 0:  # in the middle of the third
        threading.Timer(0.05, subprocess.run, [["rdma", "link", "delete", "rxeA"]]).start()
    y = x.copy()
    comm.allreduce(y)
    assert (y == 2 * np.arange(x.size, dtype=np.float32) + 1).all()
"""


def results(vm: Machine, source: str, paths: str, rdma: str = "") -> tuple[list[dict[str, object]], str]:
    """What both ranks printed, and what they logged."""
    done = vm.run(f"export DICOMM_PATHS='{paths}' DICOMM_RDMA='{rdma}'\n" + job(source), timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == 2
    return lines, done.stderr


@pytest.mark.parametrize("path", ["rdma-direct", "rdma-staged"])
def test_messages_and_collectives_between_the_hosts(vm: Machine, path: str) -> None:
    for rank in results(vm, COLLECTIVES.replace("AFTER", ""), path)[0]:
        assert rank["path"] == path
        assert rank["links"] == 1
        assert rank["fallbacks"] == rank["socket_bytes"] == 0
        other = {"rdma-direct": "staged_bytes", "rdma-staged": "direct_bytes"}[path]
        assert rank[other] == 0
        assert rank[path.replace("rdma-", "") + "_bytes"]


def test_a_lost_card_is_left_for_tcp_in_mid_operation(vm: Machine) -> None:
    source = COLLECTIVES.replace("AFTER", CUT)
    ranks, logged = results(vm, source, "rdma-direct>tcp", "timeout=14, retry_count=3")
    for rank in ranks:
        assert rank["path"] == "tcp"
        assert rank["fallbacks"] == 1
        assert rank["direct_bytes"]
        assert rank["socket_bytes"]
    for mine, theirs in ((0, 1), (1, 0)):
        names = rf"rank {mine} cpu@\S+ -> rank {theirs} cpu@\S+"
        assert re.search(rf"RDMA connection \w+ \({names}\), messages go over tcp until", logged), logged


def test_a_path_that_cannot_be_had_is_named(vm: Machine) -> None:
    done = vm.run(
        "export DICOMM_PATHS=rdma-direct DICOMM_RDMA=devices=mlx5_0 DICOMM_SIZE=1 DICOMM_RANK=0\n"
        + job("import dicomm; dicomm.init()")
    )
    assert done.returncode != 0
    assert "no device of those named" in done.stderr


@needs_native_tests
def test_the_transport_suite_on_a_card(vm: Machine) -> None:
    done = vm.run(native_tests("-tc=transport real rdma*"), timeout=800)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    assert "skipped: " not in done.stdout
