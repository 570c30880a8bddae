"""Packages of chip vendors, and compiling against the headers they ship."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "native"


def package_folder(module: str, package: str) -> Path:
    """Where `module` lies, without importing it; skips the test when the package is not installed."""
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        spec = None
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{package} is not installed")
    return Path(next(iter(spec.submodule_search_locations)))


def listed(text: str, name: str) -> list[tuple[str, ...]]:
    """The rows of the list macro `name` in a header's text."""
    found = re.search(rf"#define {name}\(X\)((?:.*\\\n)*.*\n)", text)
    assert found is not None
    return [tuple(re.split(r",\s*", row)) for row in re.findall(r"X\((\w+(?:, ?[^)]*)?)\)", found[1])]


def compile_with(includes: list[Path], *arguments: str) -> None:
    """Runs the C++ compiler; fails the test with what it says."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    folders = [*includes, NATIVE / "include", NATIVE / "src", NATIVE / "tests", ROOT / "tests/abi"]
    done = subprocess.run(
        [compiler, "-std=c++20", *(f"-I{folder}" for folder in folders), *arguments],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
