"""Jobs whose ranks let MPI do the inside of their island: mpirun starts them, Open MPI's or MPICH's."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
RANK = Path(__file__).with_name("mpi_rank.py")

pytestmark = pytest.mark.mpi


def mpirun(case: str, kinds: str, *options: str, timeout: float = 50) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("mpi4py")
    command = Path(sys.executable).parent / "mpirun"
    if not command.exists():
        pytest.skip("no mpirun beside this Python")
    ranks = kinds.count(",") + 1
    return subprocess.run(
        [command, *options, "-n", str(ranks), "--map-by", ":OVERSUBSCRIBE", "--bind-to", "none",
         *(["--allow-run-as-root"] if os.geteuid() == 0 else []), sys.executable, RANK, case, kinds],
        env={**os.environ, "PYTHONPATH": str(TESTS)}, capture_output=True, text=True,
        timeout=timeout, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    "kinds",
    ["mpi,mpi,alpha,alpha", "cpu,mpi,cpu,mpi", "mpi,mpi,mpi"],
    ids=["2+2 with simulated chips", "interleaved with plain ranks", "one island"],
)
def test_every_operation(kinds: str) -> None:
    done = mpirun("operations", kinds)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("fine") == kinds.count(",") + 1


def test_data_go_by_mpi() -> None:
    done = mpirun("moves_by_mpi", "mpi,mpi,mpi")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_rank_that_dies_ends_the_others() -> None:
    """mpirun, told to leave the others alone, does nothing: dicomm notices."""
    begun = time.monotonic()
    done = mpirun("dies", "mpi,mpi,mpi,alpha", "--enable-recovery", timeout=30)
    assert time.monotonic() - begun < 25
    assert done.stdout.count("PeerLost after") == 3, done.stdout + done.stderr


def test_abort_frees_ranks_inside_mpi() -> None:
    done = mpirun("aborts", "mpi,mpi,mpi", timeout=30)
    assert done.stdout.count("fine") == 3, done.stdout + done.stderr
