"""What launchers' variables are taken to mean."""

from __future__ import annotations

import pytest

from dicomm import InvalidArgument
from dicomm.launch import detect, first_host

TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "host-a",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "abc",
    "TORCHELASTIC_RESTART_COUNT": "2",
}
SLURM = {
    "SLURM_PROCID": "5",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_NTASKS": "16",
    "SLURM_LOCALID": "1",
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "gpu[07-09,12],login",
}
MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}


def test_nothing() -> None:
    assert detect({}) is None
    assert detect({"RANK": "0", "WORLD_SIZE": "2"}) is None


def test_torchrun() -> None:
    found = detect(TORCHRUN)
    assert found is not None
    assert (found.launcher, found.rank, found.size, found.local_rank) == ("torchrun", 3, 4, 1)
    assert (found.host, found.port) == ("host-a", 29501)  # 29500 is torch's own store
    assert found.attempt == 2
    assert "abc" in found.job


def test_slurm() -> None:
    found = detect(SLURM)
    assert found is not None
    assert (found.launcher, found.rank, found.size, found.local_rank, found.host) == (
        "Slurm",
        5,
        8,
        1,
        "gpu07",
    )
    assert 20000 <= found.port < 32768
    other = detect(SLURM | {"SLURM_STEP_ID": "1"})
    assert other is not None
    assert other.job != found.job
    assert detect({k: v for k, v in SLURM.items() if k != "SLURM_STEP_ID"}) is None  # the batch script


def test_openmpi_and_precedence() -> None:
    found = detect(MPI | SLURM)
    assert found is not None
    assert (found.launcher, found.rank, found.size, found.host) == ("Open MPI", 1, 2, "")
    both = detect(MPI | TORCHRUN)
    assert both is not None
    assert both.launcher == "torchrun"


@pytest.mark.parametrize(
    "change", [{"RANK": "4"}, {"RANK": "-1"}, {"WORLD_SIZE": "x"}, {"MASTER_PORT": "80a"}]
)
def test_nonsense_is_named(change: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument):
        detect(TORCHRUN | change)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("a", "a"),
        ("a,b", "a"),
        ("gpu[07-09,12]", "gpu07"),
        ("gpu[3,5]-x,login", "gpu3-x"),
        ("r[1-2]n[04-08]", "r1n04"),
        ("", ""),
    ],
)
def test_first_host(nodes: str, expected: str) -> None:
    assert first_host(nodes) == expected
