"""Runs PyTorch's own distributed tests, from the installed wheel, against backend "dicomm".

    python tests/torch/upstream.py [--world-size 2] [--jobs 2] [NAME ...]

They enable themselves by the name in BACKEND: here it compares equal to "gloo" and "mpi" too, so that every
CPU test runs, while torch is given the plain name. Each test forks its ranks in a session of its own, under a
time limit. Exit status 1 when a test fails or hangs.
"""

from __future__ import annotations

import argparse
import functools
import os
import signal
import sys
import tempfile
import time
import unittest
from collections.abc import Callable
from typing import Any

# ddp logging data wants the name "gloo"; a backend registered from outside is called "custom" there.
IMPOSSIBLE = {"test_ddp_logging_data_cpu"}


class Name(str):
    """A backend's name that passes the gates of two others."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) is True or other in ("gloo", "mpi")

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash("gloo")


def gate(is_open: bool, skip_code: int) -> Callable[[Any], Any]:
    def decorate(function: Any) -> Any:
        return function if is_open else functools.wraps(function)(lambda *_, **__: sys.exit(skip_code))

    return decorate


def load(size: int, limit: int) -> type[unittest.TestCase]:
    os.environ.update(
        BACKEND="dicomm",
        WORLD_SIZE=str(size),
        DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=str(limit),
        INIT_METHOD="file:///replaced-by-every-test",
        OMP_NUM_THREADS="1",
        GLOO_SOCKET_IFNAME="lo",
        DICOMM_INTERFACE="127.0.0.1",
    )
    environ = type(os.environ)
    read = environ.__getitem__
    name = Name("dicomm")
    environ.__getitem__ = lambda self, key: name if key == "BACKEND" else read(self, key)  # type: ignore[method-assign]
    import torch.testing._internal.common_distributed as common

    for feature in ("ddp", "gpu", "subgroup", "plugin"):
        common.DistTestCases.backend_feature[feature].add("dicomm")
    # Upstream's gates ask for the name or for 8 ranks; what those tests really use is ranks 1 and 2.
    common.skip_if_small_worldsize = gate(size >= 3, common.TEST_SKIPS["small_worldsize"].exit_code)
    common.skip_if_odd_worldsize = gate(size % 2 == 0, common.TEST_SKIPS["odd_worldsize"].exit_code)
    import torch.testing._internal.distributed.distributed_test as upstream

    upstream.PROFILING_SUPPORTED_BACKENDS.append("dicomm")
    upstream.SEND_RECV_PROFILING_SUPPORTED_BACKENDS.append("dicomm")

    class Upstream(upstream.TestDistBackend, upstream.DistributedTest._DistTestBase):
        def setUp(self) -> None:
            super().setUp()
            import torch.multiprocessing

            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    Upstream.upstream = upstream
    return Upstream


def run_one(cls: Any, test: str, directory: str) -> None:
    """In a forked child: says what came of the test and ends."""
    os.setsid()
    out = os.open(f"{directory}/{test}.log", os.O_WRONLY | os.O_CREAT)
    os.dup2(out, 1)
    os.dup2(out, 2)
    cls.upstream.INIT_METHOD = os.environ["INIT_METHOD"] = f"file://{directory}/{test}.init"
    result = unittest.TestResult()
    try:
        cls(test).run(result)
    except BaseException as error:
        result.errors.append((unittest.TestCase(), repr(error)))
    bad = result.errors + result.failures
    with open(f"{directory}/{test}.log", "a") as log:
        log.writelines(text for _, text in bad)
    os._exit(1 if bad else 2 if result.skipped else 0)


def run_all(cls: Any, tests: list[str], jobs: int, limit: int, directory: str) -> dict[str, str]:
    outcomes: dict[str, str] = {}
    running: dict[int, tuple[str, float]] = {}
    queue = list(reversed(tests))
    while queue or running:
        while queue and len(running) < jobs:
            test = queue.pop()
            if not (pid := os.fork()):
                run_one(cls, test, directory)
            running[pid] = test, time.monotonic() + limit + 20
        for pid, (test, end) in list(running.items()):
            done = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if not done and time.monotonic() < end:
                continue
            os.killpg(pid, signal.SIGKILL)  # its ranks too, should any be left
            status = os.waitpid(pid, 0)[1]
            code = os.waitstatus_to_exitcode(status) if done else None
            outcomes[test] = {0: "pass", 2: "skip", None: "hang"}.get(code, "fail")
            del running[pid]
            if outcomes[test] in ("fail", "hang"):
                with open(f"{directory}/{test}.log", errors="replace") as log:
                    print(f"{outcomes[test]}: {test}\n{log.read()[-3000:]}", flush=True)
        time.sleep(0.02)
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tests", nargs="*")
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=int, default=120, help="seconds for one test")
    args = parser.parse_args()
    cls = load(args.world_size, args.limit)
    tests = args.tests or [t for t in unittest.TestLoader().getTestCaseNames(cls) if t not in IMPOSSIBLE]
    with tempfile.TemporaryDirectory(prefix="dicomm-upstream-", ignore_cleanup_errors=True) as directory:
        outcomes = run_all(cls, tests, args.jobs, args.limit, directory)
    counts = {word: list(outcomes.values()).count(word) for word in ("pass", "skip", "fail", "hang")}
    print(f"world size {args.world_size}:", *(f"{word}={count}" for word, count in counts.items()))
    return 1 if counts["fail"] or counts["hang"] else 0


if __name__ == "__main__":
    sys.exit(main())
