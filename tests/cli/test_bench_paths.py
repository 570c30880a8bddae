"""`dicomm bench --path`, on paths that every machine has and on one that this job cannot have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import pytest

from dicomm import Communicator, Config, InvalidArgument
from dicomm.cli import bench_paths
from dicomm.context import Context
from support.ranks import Ranks

NO_CARD = {"DICOMM_RDMA": "devices=none0"}  # whatever cards there are


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dicomm", "bench", "--ranks", "2", *arguments]
    environment = {**os.environ, **NO_CARD}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=55, check=False, env=environment, cwd="/"
    )


def test_paths_are_measured_side_by_side_and_those_that_cannot_be_had_are_named() -> None:
    sizes = ["-b", "8", "-e", "64K", "-f", "8192", "-n", "4"]
    done = bench(
        "latency", "allreduce", *sizes, "--path", "tcp,rdma-direct,shm,rdma-staged>shm>tcp", "--json"
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    tcp, direct, shm, best = document["paths"]
    assert tcp == {"path": "tcp", "used": ["tcp"], "reason": ""}
    assert shm == {"path": "shm", "used": ["shm"], "reason": ""}
    assert best == {"path": "rdma-staged>shm>tcp", "used": ["shm"], "reason": ""}
    assert direct["used"] == []
    assert direct["reason"].startswith("rank 0: ")
    assert "rdma-direct: " in direct["reason"]
    assert f"path rdma-direct cannot be had: {direct['reason']}" in done.stderr
    assert "path rdma-staged>shm>tcp: messages took shm" in done.stderr

    rows = document["results"]
    assert [row["path"] for row in rows] == ["tcp", "shm", "rdma-staged>shm>tcp"] * 4
    for first, *others in zip(rows[::3], rows[1::3], rows[2::3], strict=True):
        assert first["ratio"] is None
        for row in others:
            assert (row["operation"], row["size"]) == (first["operation"], first["size"])
            assert row["ratio"] == pytest.approx(row["time_us"] / first["time_us"])
    assert all(row["errors"] == 0 for row in rows)


def test_the_table_has_a_column_for_each_path() -> None:
    done = bench("latency", "-b", "1K", "-e", "1K", "-n", "4", "--path", "shm,tcp")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    names, heads, figures = done.stdout.splitlines()[-3:]
    assert names.split() == ["shm", "tcp"]
    assert heads.split().count("busbw") == 2
    assert heads.split().count("ratio") == 1
    assert figures.endswith("x")


def test_no_path_at_all_is_a_failure() -> None:
    done = bench("latency", "--path", "rdma-staged")
    assert done.returncode == 1
    assert "path rdma-staged cannot be had: rank 0: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_rank_that_cannot_have_the_path_keeps_all_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rank_of: dict[int, int] = {}

    def obstacle(config: Config) -> str:
        assert config.paths == "rdma-direct"
        return "no card" if rank_of[threading.get_ident()] == 1 else ""

    def open_it(comm: Communicator) -> bench_paths.BenchPath:
        rank_of[threading.get_ident()] = comm.rank
        return bench_paths.open_path("rdma-direct", comm)

    monkeypatch.setattr(bench_paths, "obstacle", obstacle)
    with Ranks(3) as ranks:
        for path in ranks.run(open_it):
            assert path.comm is None
            assert path.reason == "rank 1: no card"


def test_names_of_paths_are_the_library_s() -> None:
    with pytest.raises(InvalidArgument, match="is not one of: " + " ".join(bench_paths.PATHS)):
        Context(Config(paths="fast"))
