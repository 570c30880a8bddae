"""Start ranks on this host with the environment torchrun would give them.

The ranks die with the caller, whatever ends it: Ctrl-C and SIGTERM are passed on, and the kernel kills them
(PR_SET_PDEATHSIG) should the caller be killed outright. Linux only, as the rest of dicomm.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import IO

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.02
_GRACE_S = 3.0


class Interrupted(Exception):
    """A signal ended the run; the ranks are gone."""

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.number = number


def run_ranks(
    command: Sequence[str],
    ranks: int,
    *,
    quiet: bool = True,
    variables: Mapping[str, str] | None = None,
    output: IO[bytes] | None = None,
) -> int:
    """Run ``command`` on ``ranks`` local ranks and wait for all of them.

    Returns 0, or the exit status of the rank that failed first (128 + signal if one killed it). The others
    then get a few seconds to report on their own before they are ended. Rank 0 writes to our standard output,
    or to the file ``output``; with ``quiet`` the other ranks' standard output is dropped. Standard error is
    shared. ``variables`` join the ranks' environment. Raises Interrupted.
    """
    port = _free_port()
    children: list[subprocess.Popen[bytes]] = []
    with _signals_raise():
        try:
            for rank in range(ranks):
                stdout = output if rank == 0 or not quiet else subprocess.DEVNULL
                children.append(_start(command, _launched(rank, ranks, port, variables or {}), stdout))
            return _wait(children)
        finally:
            _end(children)


def _launched(rank: int, ranks: int, port: int, more: Mapping[str, str]) -> dict[str, object]:
    return {
        "RANK": rank,
        "WORLD_SIZE": ranks,
        "LOCAL_RANK": rank,
        "LOCAL_WORLD_SIZE": ranks,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "OMP_NUM_THREADS": 1,
        **more,
    }


def _start(
    command: Sequence[str], variables: Mapping[str, object], stdout: IO[bytes] | int | None
) -> subprocess.Popen[bytes]:
    # env adds to the environment without our reading it: dicomm/config.py alone does that.
    command = ["/usr/bin/env", *(f"{name}={value}" for name, value in variables.items()), *command]
    # From "/", because `python -m` looks for modules where it stands first: in dicomm's source tree it would
    # find the package without its compiled half.
    return subprocess.Popen(
        command, cwd="/", stdin=subprocess.DEVNULL, stdout=stdout, preexec_fn=die_with(os.getpid())
    )


def die_with(parent: int) -> Callable[[], None]:
    """What a child does after the fork, so that it does not outlive its parent, this process. A group of its
    own keeps the terminal's Ctrl-C to the parent, which ends its children in order instead of letting each
    print a traceback."""
    prctl = ctypes.CDLL(None).prctl

    def in_child() -> None:
        os.setpgid(0, 0)
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before prctl
            os._exit(1)

    return in_child


def _wait(children: list[subprocess.Popen[bytes]]) -> int:
    failed = 0
    deadline = float("inf")
    while _running(children) and time.monotonic() < deadline:
        if not failed:
            failed = _first_failure(children)
            if failed:
                deadline = time.monotonic() + _GRACE_S
        time.sleep(_POLL_S)
    return failed or _first_failure(children)


def _running(children: list[subprocess.Popen[bytes]]) -> bool:
    """Looks at every child, so that each one's returncode is up to date."""
    return None in [child.poll() for child in children]


def _first_failure(children: list[subprocess.Popen[bytes]]) -> int:
    for child in children:
        if child.returncode:
            return child.returncode if child.returncode > 0 else 128 - child.returncode
    return 0


def _end(children: list[subprocess.Popen[bytes]]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        for child in children:
            if child.returncode is None:
                _signal_group(child.pid, number)
        deadline = time.monotonic() + _GRACE_S
        while _running(children) and time.monotonic() < deadline:
            time.sleep(_POLL_S)


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it ended since poll()
        os.killpg(pid, number)


@contextlib.contextmanager
def _signals_raise() -> Iterator[None]:
    def handler(number: int, frame: FrameType | None) -> None:
        raise Interrupted(number)

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, handler) for number in numbers]
    try:
        yield
    finally:
        for number, old in zip(numbers, before, strict=True):
            signal.signal(number, old)


def _free_port() -> int:
    """A port that is free together with the next one: torch's store takes the first, dicomm's the second."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            try:
                second.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):  # taken, or beyond 65535
                continue
            return port


def own_command(*arguments: str) -> list[str]:
    """The command line that runs this very ``dicomm`` again."""
    return [sys.executable, "-m", "dicomm", *arguments]
