"""Ranks as processes: each runs a piece of Python source with `comm` ready, and prints what it finds."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import uuid
from collections.abc import Callable
from types import TracebackType

_PROLOGUE = """
import os, sys, time, signal
import numpy as np
import dicomm
def say(*words):
    print(*words, flush=True)
"""
_JOIN = "comm = dicomm.init()\nsay('ready')\n"


class Job:
    """`with Job(4, source) as job:` starts four ranks. Ended ranks' output is in `job.output(rank)`.

    join: call dicomm.init() first and print "ready". launch: the command that starts a rank's Python.
    Environment variables in `env` are added. Everything still running at the end of the block is killed.
    """

    def __init__(
        self,
        size: int,
        source: str,
        *,
        join: bool = True,
        env: dict[str, str] | None = None,
        launch: Callable[[int], list[str]] = lambda rank: [],
    ) -> None:
        self.size = size
        self._launch = launch
        self._directory = tempfile.TemporaryDirectory(prefix="dicomm-job-")
        self._source = _PROLOGUE + (_JOIN if join else "") + textwrap.dedent(source)
        self.environment = {
            "DICOMM_INIT": f"file://{self._directory.name}/{uuid.uuid4().hex}",
            "DICOMM_SIZE": str(size),
            "DICOMM_INTERFACE": "127.0.0.1",
            "DICOMM_TIMEOUT": "20",
            "DICOMM_INIT_TIMEOUT": "20",
            **(env or {}),
        }
        self.processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Job:
        for rank in range(self.size):
            self.start(rank)
        return self

    def start(self, rank: int) -> None:
        out = open(self._path(rank), "w")  # noqa: SIM115 - closed below, the child keeps it
        environment = {k: v for k, v in os.environ.items() if not re.match(r"DICOMM_|OMPI_|SLURM_|RANK$", k)}
        self.processes.append(
            subprocess.Popen(
                [*self._launch(rank), sys.executable, "-c", self._source],
                env={**environment, **self.environment, "DICOMM_RANK": str(rank)},
                stdout=out,
                stderr=subprocess.STDOUT,
                text=True,
                cwd=self._directory.name,
            )
        )
        out.close()

    def _path(self, rank: int) -> str:
        return f"{self._directory.name}/output-{rank}"

    def output(self, rank: int) -> str:
        with open(self._path(rank)) as file:
            return file.read()

    def signal(self, rank: int, number: int) -> None:
        self.processes[rank].send_signal(number)

    def wait_for(self, rank: int, text: str, timeout: float = 20.0) -> float:
        """Waits until a rank has printed the text; returns the time (monotonic) when it was seen."""
        end = time.monotonic() + timeout
        while text not in self.output(rank):
            if time.monotonic() > end:
                raise AssertionError(f"rank {rank} never printed {text!r}:\n{self.output(rank)}")
            if self.processes[rank].poll() is not None and text not in self.output(rank):
                raise AssertionError(f"rank {rank} ended without printing {text!r}:\n{self.output(rank)}")
            time.sleep(0.005)
        return time.monotonic()

    def wait(self, ranks: range | list[int] | None = None, timeout: float = 30.0) -> list[int]:
        """Exit codes, by rank. Fails with everything printed when a rank does not end."""
        end = time.monotonic() + timeout
        codes = []
        for rank in range(self.size) if ranks is None else ranks:
            try:
                codes.append(self.processes[rank].wait(max(0.01, end - time.monotonic())))
            except subprocess.TimeoutExpired:
                outputs = "\n".join(f"--- rank {r}\n{self.output(r)}" for r in range(self.size))
                raise AssertionError(f"rank {rank} has not ended within {timeout} s\n{outputs}") from None
        return codes

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()
        self._directory.cleanup()


def run_job(size: int, source: str, *, env: dict[str, str] | None = None, timeout: float = 30.0) -> list[str]:
    """Runs the source on every rank, expects exit code 0 everywhere, and returns the outputs."""
    with Job(size, source, env=env) as job:
        codes = job.wait(timeout=timeout)
        outputs = [job.output(rank) for rank in range(size)]
    assert codes == [0] * size, "\n".join(f"--- rank {r}\n{text}" for r, text in enumerate(outputs))
    return outputs
