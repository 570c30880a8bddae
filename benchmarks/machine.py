"""What one must know to compare figures of two runs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

from dicomm.cli.bench_report import fingerprint
from programs import COMPILER


def describe() -> dict[str, Any]:
    """dicomm's own fingerprint, and the compiler of the C programs and the commit; gloo is torch's."""
    return fingerprint() | {
        "compiler": _first_line(COMPILER, "--version"),
        "commit": _commit(),
        "load": _load(),
    }


def _first_line(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.split("\n")[0]


def _commit() -> str | None:
    """Of the tree this suite stands in, with "-dirty" when it has changes."""
    return _first_line(
        "git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"
    )


def _load() -> float:
    """Processes that wanted to run in the last minute: a machine that is not quiet shows here."""
    found = re.match(r"[\d.]+", Path("/proc/loadavg").read_text())
    assert found
    return float(found[0])
