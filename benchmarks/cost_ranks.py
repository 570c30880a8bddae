"""`python cost_ranks.py BACKEND RANKS`: what ranks cost: time, memory, file descriptors and threads, as JSON.

This process imports torch and forks the ranks, so that 128 of them share torch's memory. They go through the
phases together: meet (connect to torch's store, one after another, which costs every backend the same), load
(import what the backend needs beyond torch), init (init_process_group), operate (one allreduce of 4 bytes).
After each, when all have done it, every rank looks at itself. Memory is the proportional set size of all
processes together: each page counts once however many share it. Sockets' buffers in the kernel are not in it.
"""

from __future__ import annotations

import gc
import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"  # its store warns of every connection that a busy machine delays

import torch
import torch.distributed as dist

from dicomm.cli.local_ranks import die_with

PHASES = ("meet", "load", "init", "operate")
Phase = Callable[[], object]


def look() -> dict[str, float]:
    found = re.search(r"^Pss: +(\d+) kB", Path("/proc/self/smaps_rollup").read_text(), re.MULTILINE)
    assert found
    return {
        "memory": int(found[1]) * 1024,
        "fds": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
    }


def phases(backend: str, rank: int, ranks: int, port: int) -> dict[str, Phase]:
    stores = []

    def meet() -> None:
        stores.append(dist.TCPStore("127.0.0.1", port, ranks, is_master=False))  # type: ignore[attr-defined]

    def load() -> None:
        if backend == "dicomm":
            import dicomm.torch.plugin  # noqa: F401 - the import is what is measured

    def join() -> None:
        dist.init_process_group(backend, store=stores[0], rank=rank, world_size=ranks)

    def operate() -> None:
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        assert tensor.item() == ranks

    return {"meet": meet, "load": load, "init": join, "operate": operate}


def be_rank(backend: str, rank: int, ranks: int, commands: IO[str], answers: IO[str]) -> None:
    port = int(commands.readline())
    for phase in phases(backend, rank, ranks, port).values():
        commands.readline()
        start = time.perf_counter()
        phase()
        answers.write(json.dumps({"seconds": time.perf_counter() - start}) + "\n")
        answers.flush()
        commands.readline()  # all have done it
        answers.write(json.dumps(look()) + "\n")
        answers.flush()
    commands.readline()  # all have been looked at
    dist.destroy_process_group()


def fork(backend: str, ranks: int) -> list[tuple[IO[str], IO[str]]]:
    """The ranks' pipes: commands to them, answers from them."""
    gc.freeze()  # a collection would write to every object and unshare its page
    pipes: list[tuple[IO[str], IO[str]]] = []
    follow = die_with(os.getpid())
    for rank in range(ranks):
        (command_out, command_in), (answer_out, answer_in) = os.pipe(), os.pipe()
        if os.fork() == 0:
            follow()
            for pair in pipes:
                for pipe in pair:
                    os.close(pipe.fileno())
            os.close(command_in)
            os.close(answer_out)
            status = 1
            try:
                be_rank(backend, rank, ranks, os.fdopen(command_out), os.fdopen(answer_in, "w"))
                status = 0
            finally:
                os._exit(status)
        os.close(command_out)
        os.close(answer_in)
        pipes.append((os.fdopen(command_in, "w"), os.fdopen(answer_out)))
    return pipes


def everywhere(pipes: list[tuple[IO[str], IO[str]]], word: object) -> list[dict[str, float]]:
    tell(pipes, word)
    return [json.loads(answers.readline()) for _, answers in pipes]


def tell(pipes: list[tuple[IO[str], IO[str]]], word: object) -> None:
    for commands, _ in pipes:
        commands.write(f"{word}\n")
        commands.flush()


def main(backend: str, ranks: int) -> dict[str, Any]:
    """Per phase: seconds on the slowest rank, bytes of all processes, fds and threads of the worst rank."""
    torch.set_num_threads(1)
    pipes = fork(backend, ranks)
    # After the fork, for it has a thread.
    store = dist.TCPStore("127.0.0.1", 0, ranks, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    tell(pipes, store.port)
    found = {}
    for phase in PHASES:
        # Many that connect at once overrun the store's listener and wait for half a second or more.
        groups = [[pipe] for pipe in pipes] if phase == "meet" else [pipes]
        seconds = max(answer["seconds"] for group in groups for answer in everywhere(group, phase))
        seen = everywhere(pipes, "look")
        found[phase] = {
            "seconds": seconds,
            "memory": sum(rank["memory"] for rank in seen) + look()["memory"],
            "fds": max(rank["fds"] for rank in seen),
            "threads": max(rank["threads"] for rank in seen),
        }
    tell(pipes, "end")
    for _ in range(ranks):
        _, status = os.wait()
        if status != 0:
            sys.exit(f"a rank of {backend} ended with status {status}")
    return found


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]))))
