"""What a test may not leave behind: file descriptors, threads, shared memory, child processes."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil


def _descriptors() -> dict[str, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the one listdir used
    return found


def _threads() -> set[str]:
    timers = {str(t.native_id) for t in threading.enumerate() if isinstance(t, threading.Timer)}
    return set(os.listdir("/proc/self/task")) - timers  # those of pytest-timeout


def _shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir() if "dicomm" in path.name}


def _children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


@contextmanager
def no_leaks(patience: float = 2.0) -> Iterator[None]:
    """Fails when the block leaves more behind than it found; threads get `patience` seconds to end."""
    gc.collect()
    before = (_descriptors(), _threads(), _shared_memory(), _children())
    yield
    end = time.monotonic() + patience
    while True:
        gc.collect()
        descriptors = {n: t for n, t in _descriptors().items() if before[0].get(n) != t}
        left = (descriptors, _threads() - before[1], _shared_memory() - before[2], _children() - before[3])
        if not any(left) or time.monotonic() > end:
            break
        time.sleep(0.02)
    assert not any(left), (
        f"left behind: descriptors {left[0]}, threads {left[1]}, memory {left[2]}, pids {left[3]}"
    )
