"""The suite's C programs, compiled on the fly, and what they print."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dicomm.cli.local_ranks import die_with

HERE = Path(__file__).parent
COMPILER = os.environ.get("CC", "cc")
Seconds = dict[str, "float | None"]  # None: refused here


@functools.cache
def _directory() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="dicomm-bench-")  # removed at exit


@functools.cache
def build(name: str, with_dicomm: bool = False) -> Path:
    """The program made of benchmarks/NAME.c, linked with the installed libdicomm if asked."""
    program = Path(_directory().name) / name
    command = [COMPILER, "-std=gnu11", "-O3", "-march=native", str(HERE / f"{name}.c"), "-o", str(program)]
    if with_dicomm:
        spec = importlib.util.find_spec("dicomm._cffi")
        if spec is None or spec.origin is None:
            raise RuntimeError("dicomm is not installed with its native library")
        package = Path(spec.origin).parent
        command += ["-I", str(package / "include"), str(package / "lib/libdicomm.so")]
        command += [f"-Wl,-rpath,{package / 'lib'}"]
    subprocess.run(command, check=True, timeout=120)
    return program


def run(*command: str | int | Path) -> Any:
    """What it prints, which is JSON."""
    done = subprocess.run(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=600,
        preexec_fn=die_with(os.getpid()),
    )
    return json.loads(done.stdout)


def alternate(times: int, *commands: Sequence[str | int | Path]) -> list[list[Seconds]]:
    """Runs our C programs in turn, so many times each; what each printed: seconds by name."""
    found: list[list[Seconds]] = [[] for _ in commands]
    for _ in range(times):
        for command, into in zip(commands, found, strict=True):
            into.append(run(*command))
    return found


def median(found: list[Seconds], name: str) -> float | None:
    """Over several runs of a program; None if any was refused."""
    values = [seconds[name] for seconds in found]
    known = sorted(value for value in values if value is not None)
    return known[len(known) // 2] if len(known) == len(values) else None
