"""Jobs that mpirun starts: the one beside this Python, Open MPI's or MPICH's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]


def mpirun(
    ranks: int, program: Path, *arguments: str, options: tuple[str, ...] = (), timeout: float = 50
) -> subprocess.CompletedProcess[str]:
    """Runs a Python program on ranks that are processes of one MPI job, which it starts with what tests may
    import on its path. Skips the test where mpi4py or mpirun is absent."""
    pytest.importorskip("mpi4py")
    command = Path(sys.executable).parent / "mpirun"
    if not command.exists():
        pytest.skip("no mpirun beside this Python")
    return subprocess.run(
        [command, *options, "-n", str(ranks), "--map-by", ":OVERSUBSCRIBE", "--bind-to", "none",
         *(["--allow-run-as-root"] if os.geteuid() == 0 else []), sys.executable, program, *arguments],
        env={**os.environ, "PYTHONPATH": str(TESTS)}, capture_output=True, text=True,
        timeout=timeout, check=False,
    )  # fmt: skip
