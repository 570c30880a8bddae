"""Runs functions of test files on ranks: one process that has imported torch, and forks every rank.

Importing torch takes seconds of CPU per process, a fork milliseconds. Protocol: one JSON object per line on
standard input asks for a job, one per line on standard output answers. See conftest.py for the fields.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib.util
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # what the tests import, once for all ranks
import torch.distributed as dist
import torch.distributed.checkpoint
import torch.distributed.fsdp
import torch.distributed.pipelining
import torch.distributed.tensor.parallel


def run_rank(job: dict[str, Any], rank: int, directory: Path) -> int:
    os.environ.update(job["env"])
    faulthandler.dump_traceback_later(job["timeout"] - 1, exit=False)
    torch.set_num_threads(1)
    dist.set_debug_level_from_env()
    spec = importlib.util.spec_from_file_location("rank_code", job["file"])
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["rank_code"] = module
    spec.loader.exec_module(module)
    if job["backend"]:
        dist.init_process_group(
            job["backend"],
            init_method=f"file://{directory}/init",
            rank=rank,
            world_size=job["size"],
            timeout=timedelta(seconds=job["timeout"]),
        )
    result = getattr(module, job["function"])(rank, job["size"], **job["arguments"])
    if dist.is_initialized():
        dist.destroy_process_group()
    (directory / f"result-{rank}").write_text(json.dumps(result))
    return 0


def fork_rank(job: dict[str, Any], rank: int, directory: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        out = os.open(directory / f"output-{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        code = run_rank(job, rank, directory)
    except SystemExit as exit:
        code = exit.code if isinstance(exit.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run_job(job: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="dicomm-torch-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        pids = {fork_rank(job, rank, directory): rank for rank in range(job["size"])}
        end = time.monotonic() + job["timeout"]
        while pids and time.monotonic() < end:
            for pid in list(pids):
                if os.waitpid(pid, os.WNOHANG)[0]:
                    del pids[pid]
            time.sleep(0.005)
        stuck = set(pids.values())
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        return collect(job, directory, stuck)


def collect(job: dict[str, Any], directory: Path, stuck: set[int]) -> dict[str, Any]:
    results, problems = [], []
    for rank in range(job["size"]):
        result = directory / f"result-{rank}"
        results.append(json.loads(result.read_text()) if result.exists() else None)
        if not result.exists():
            output = directory / f"output-{rank}"
            said = output.read_text(errors="replace") if output.exists() else ""
            ending = f"has not ended within {job['timeout']} s" if rank in stuck else "failed"
            problems.append(f"--- rank {rank} {ending}\n{said[-6000:]}")
    return {"results": results, "problems": problems}


def main() -> None:
    with contextlib.suppress(KeyboardInterrupt):
        for line in sys.stdin:
            print(json.dumps(run_job(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
