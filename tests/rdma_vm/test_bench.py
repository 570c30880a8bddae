"""`dicomm bench --path` between the hosts, and the benchmark that runs dicomm beside perftest."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from rdma_vm.jobs import ranks
from rdma_vm.machine import Machine

pytestmark = [pytest.mark.rdma_vm, pytest.mark.timeout(600)]

BENCHMARK = Path(__file__).parents[2] / "benchmarks/rdma.py"
HOSTS = ["--hosts", "ip netns exec hostA", "ip netns exec hostB", "--gid-index", "1"]
CARDS = ["--addresses", "198.51.100.1", "198.51.100.2", "--devices", "rxeA", "rxeB"]


def test_paths_side_by_side(vm: Machine) -> None:
    few = ["-b", "8", "-e", "128K", "-f", "16384", "-n", "4", "-w", "1"]
    paths = "rdma-direct,rdma-staged,tcp"
    done = vm.run(ranks("-m", "dicomm", "bench", "latency", *few, "--path", paths, "--json"), timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert [path["used"] for path in document["paths"]] == [["rdma-direct"], ["rdma-staged"], ["tcp"]]
    rows = document["results"]
    assert [row["path"] for row in rows] == ["rdma-direct", "rdma-staged", "tcp"] * 2
    assert all(row["errors"] == 0 and row["time_us"] > 0 for row in rows)


def test_beside_perftest(vm: Machine) -> None:
    few = ["--bandwidth", "128K", "--latency", "8", "--volume", "1M", "--echoes", "20", "--rounds", "1"]
    done = vm.run(shlex.join([sys.executable, str(BENCHMARK), *HOSTS, *CARDS, *few]), timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "128K messages one way, against ib_write_bw" in done.stdout
    assert "8 bytes one way, against ib_send_lat" in done.stdout
    assert "of 2 targets met" in done.stdout
