"""PyTorch's own distributed tests against this backend, at 2, 3 and 4 ranks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("upstream.py")


def run(*arguments: str, limit: float) -> None:
    pytest.importorskip("expecttest")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=limit, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(100)
def test_a_few_upstream_tests() -> None:
    run(
        "test_all_reduce_sum",
        "test_all_gather_object_default_pg",
        "test_monitored_barrier_gloo_subgroup",
        limit=90,
    )


@pytest.mark.slow
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("size", [2, 3, 4])
def test_upstream(size: int) -> None:
    run(f"--world-size={size}", limit=950)
