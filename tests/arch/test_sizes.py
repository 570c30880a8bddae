"""Files one can read in one sitting, and words that must not appear."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("dicomm", "native", "bindings", "benchmarks", "tests", "docs")
CODE = (".py", ".pyi", ".h", ".cc", ".cpp", ".c")

MAX_LINES = 500
MAX_CONTRACT_LINES = 200
# The public header documents every function of the ABI in one place.
CONTRACTS = ("transport/transport.h", "store/store.h", "coll/schedule.h", "device/device.h", "ccl/ccl.h")


def files(*suffixes: str) -> list[Path]:
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in suffixes]
    return sorted(
        path for path in found if path.is_file() and "build" not in path.relative_to(ROOT).parts[:2]
    )


@pytest.mark.parametrize("path", files(*CODE), ids=lambda path: str(path.relative_to(ROOT)))
def test_files_stay_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_LINES


def test_contract_headers_stay_short() -> None:
    present = [ROOT / "native/src" / name for name in CONTRACTS if (ROOT / "native/src" / name).exists()]
    assert len(present) >= 3
    for path in present:
        assert len(path.read_text().splitlines()) < MAX_CONTRACT_LINES, path


@pytest.mark.parametrize("word", ["TO" + "DO", "FIX" + "ME", "XX" + "X:"])
def test_nothing_is_left_for_later(word: str) -> None:
    """What is missing is said in the docs, not in a note to oneself."""
    for path in files(*CODE, ".md", ".txt", ".toml"):
        assert word not in path.read_text(), path
