"""Rules for every test: nothing is left behind, and no launcher's variables leak in from outside."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.leaks import no_leaks

_FOREIGN = ("DICOMM_", "OMPI_", "PMIX_", "SLURM_", "TORCHELASTIC_")
_TORCHRUN = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(_FOREIGN) or name in _TORCHRUN:
            monkeypatch.delenv(name)


@pytest.fixture
def leak_check() -> Iterator[None]:
    """Tests of unit and fault use it on their own; longer-lived jobs check once, at their end."""
    with no_leaks():
        yield


@pytest.fixture(scope="session")
def host_device_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled torch device of support/host_device.cc. Needs torch."""
    from support import host_device

    path = tmp_path_factory.mktemp("device") / "host_device.so"
    host_device.build(path)
    return path
