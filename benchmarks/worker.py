"""One rank of one library, started by jobs.py: does what the suite says over a socket, and sleeps in between.

Commands and answers are lines of JSON:

    {"do": "prepare", "operation": ..., "size": ..., "warmups": ...} -> {"size": bytes, "reason": if refused}
    {"do": "block", "iterations": n}                                 -> {"seconds": of one iteration}
    {"do": "check"}                                                  -> {"wrong": elements}

The socket's end ends the rank.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any

from dicomm.cli.bench_cases import Case
from dicomm.cli.bench_subjects import Api, Mpi, Subject

Loop = Callable[[int], None]


class Worker:
    def __init__(self, subject: Subject, rank: int, ranks: int) -> None:
        self._subject, self._rank, self._ranks = subject, rank, ranks
        self._meet = subject.block(self._case("barrier", 0))
        self._prepared: tuple[Case, Loop] | None = None

    def _case(self, operation: str, size: int) -> Case:
        return Case.make(operation, size, "float32", "sum", self._rank, self._ranks)

    def prepare(self, operation: str, size: int, warmups: int) -> dict[str, Any]:
        self._prepared = None  # frees the buffers before the next are made
        case = self._case(operation, size)
        case.fill()
        try:
            loop = self._subject.block(case)
            loop(warmups)
        except (RuntimeError, NotImplementedError) as error:
            return {"size": case.size, "reason": f"{type(error).__name__}: {error}"}
        self._prepared = case, loop
        return {"size": case.size, "reason": ""}

    def block(self, iterations: int) -> dict[str, Any]:
        assert self._prepared is not None
        _, loop = self._prepared
        self._meet(2)  # the second one begins with everybody awake
        start = time.perf_counter()
        loop(iterations)
        return {"seconds": (time.perf_counter() - start) / iterations}

    def check(self) -> dict[str, Any]:
        assert self._prepared is not None
        case, loop = self._prepared
        case.fill()
        self._meet(1)
        loop(1)
        return {"wrong": case.wrong()}


def subject_named(name: str, rank: int, ranks: int, meeting: str) -> Subject:
    """Collective. `meeting` is a file that does not exist yet, on which all ranks agree."""
    if name == "mpi":
        return Mpi()
    if name == "dicomm":
        from dicomm import init

        return Api(init())
    import torch
    import torch.distributed as dist

    from dicomm.torch.bench_peer import TorchBackend

    torch.set_num_threads(1)
    backend = name.removeprefix("torch-")
    store = dist.FileStore(meeting, ranks)  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=store, rank=rank, world_size=ranks)
    assert dist.group.WORLD is not None  # init_process_group has just set it
    return TorchBackend(backend, dist.group.WORLD)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("subject")
    parser.add_argument("ranks", type=int)
    parser.add_argument("control", help="the suite's socket")
    parser.add_argument("meeting")
    parser.add_argument("--rank", type=int, help="left out under mpirun")
    parser.add_argument("--pin", action="store_true", help="rank r to the r-th core, round and round")
    arguments = parser.parse_args()
    rank = int(os.environ["OMPI_COMM_WORLD_RANK"]) if arguments.rank is None else arguments.rank
    if arguments.pin:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
    control = socket.socket(socket.AF_UNIX)
    control.connect(arguments.control)
    subject = subject_named(arguments.subject, rank, arguments.ranks, arguments.meeting)
    with suppress(BrokenPipeError, ConnectionResetError):  # the suite was ended while we worked
        serve(control.makefile("rw", encoding="utf-8"), Worker(subject, rank, arguments.ranks), rank)
    subject.close()


def serve(lines: IO[str], worker: Worker, rank: int) -> None:
    """Until the suite closes its end."""
    answer: dict[str, Any] = {"rank": rank}
    while True:
        lines.write(json.dumps(answer) + "\n")
        lines.flush()
        line = lines.readline()
        if not line:
            return
        command = json.loads(line)
        answer = getattr(worker, command.pop("do"))(**command)


if __name__ == "__main__":
    main()
