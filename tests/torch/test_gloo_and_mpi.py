"""A job of two islands with two real libraries: gloo as a torch backend serves one, Open MPI the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.mpirun import mpirun

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param("gloo,gloo,mpi,mpi", id="2+2", marks=pytest.mark.slow),
        pytest.param("mpi,gloo,mpi,gloo", id="interleaved"),
    ],
)
def test_every_collective_in_the_job_and_in_each_island(
    kinds: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DICOMM_INTERFACE", "127.0.0.1")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    program = Path(__file__).with_name("gloo_and_mpi.py")
    done = mpirun(4, program, str(tmp_path / "init"), kinds, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("fine") == 4
