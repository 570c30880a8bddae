"""Jobs whose ranks let MPI do the inside of their island: mpirun starts them, Open MPI's or MPICH's."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from support.mpirun import mpirun

RANK = Path(__file__).with_name("mpi_rank.py")

pytestmark = pytest.mark.mpi


def run(case: str, kinds: str, *options: str, timeout: float = 50) -> subprocess.CompletedProcess[str]:
    return mpirun(kinds.count(",") + 1, RANK, case, kinds, options=options, timeout=timeout)


@pytest.mark.parametrize(
    "kinds",
    ["mpi,mpi,alpha,alpha", "cpu,mpi,cpu,mpi", "mpi,mpi,mpi"],
    ids=["2+2 with simulated chips", "interleaved with plain ranks", "one island"],
)
def test_every_operation(kinds: str) -> None:
    done = run("operations", kinds)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("fine") == kinds.count(",") + 1


def test_data_go_by_mpi() -> None:
    done = run("moves_by_mpi", "mpi,mpi,mpi")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_rank_that_dies_ends_the_others() -> None:
    """mpirun, told to leave the others alone, does nothing: dicomm notices."""
    begun = time.monotonic()
    done = run("dies", "mpi,mpi,mpi,alpha", "--enable-recovery", timeout=30)
    assert time.monotonic() - begun < 25
    assert done.stdout.count("PeerLost after") == 3, done.stdout + done.stderr


def test_abort_frees_ranks_inside_mpi() -> None:
    done = run("aborts", "mpi,mpi,mpi", timeout=30)
    assert done.stdout.count("fine") == 3, done.stdout + done.stderr
