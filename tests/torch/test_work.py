"""Works and futures: order, dropping, time-outs, callbacks that wait."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

pytestmark = pytest.mark.timeout(60)


def dropped_works_still_happen(rank: int, size: int) -> None:
    tensors = [torch.full((1000,), float(rank + i)) for i in range(20)]
    views = [tensor.view(-1) for tensor in tensors]
    for tensor in tensors:
        dist.all_reduce(tensor, async_op=True)
    tensors.clear()
    gc.collect()
    dist.barrier()
    for i, view in enumerate(views):
        assert view[0] == sum(range(size)) + size * i
    # A buffer that nobody holds any more is received into and sent from all the same.
    if rank == 0:
        for peer in range(1, size):
            dist.isend(torch.full((1 << 20,), 7.0), peer)
        gc.collect()
    else:
        received = torch.empty(1 << 20)
        time.sleep(0.2)
        dist.recv(received, 0)
        assert received.min() == received.max() == 7


def futures(rank: int, size: int) -> None:
    tensor = torch.full((4,), float(rank))
    future = dist.all_reduce(tensor, async_op=True).get_future()
    doubled = future.then(lambda f: f.value()[0] * 2)
    assert doubled.wait().tolist() == [2.0 * sum(range(size))] * 4
    late = dist.all_reduce(tensor, async_op=True)
    late.wait()
    assert late.get_future().wait()[0] is not None
    assert late.is_completed()
    assert late.is_success()
    assert late.get_future().done()

    def chained(f: torch.futures.Future) -> torch.Tensor:
        again = f.value()[0].clone()
        dist.all_reduce(again)  # waits inside a callback
        nested = dist.all_reduce(again.clone(), async_op=True).get_future()
        return nested.wait()[0]

    ones = torch.ones(3)
    result = dist.all_reduce(ones, async_op=True).get_future().then(chained).wait()
    assert result.tolist() == [float(size**3)] * 3


def errors_reach_futures(rank: int, size: int) -> None:
    group = dist.new_group(timeout=timedelta(seconds=0.5))
    if rank == 0:
        work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
        future = work.get_future()
        with pytest.raises(RuntimeError, match="imed out"):
            future.wait()
        with pytest.raises(dist.DistBackendError, match=" Timed out "):
            work.wait()
        assert work.is_completed()
        assert not work.is_success()
        assert work.exception() is not None
    else:
        time.sleep(1.0)
    dist.barrier()


def waiting_has_a_limit(rank: int, size: int) -> None:
    tensor = torch.ones(2)
    if rank == 0:
        work = dist.irecv(tensor, 1)
        start = time.monotonic()
        with pytest.raises(dist.DistBackendError, match=" Timed out "):
            work.wait(timedelta(milliseconds=100))
        assert 0.09 < time.monotonic() - start < 1
        assert not work.is_completed()
        dist.barrier()
        assert work.wait()
        assert tensor.tolist() == [5.0, 5.0]
    else:
        dist.barrier()
        if rank == 1:
            dist.send(tensor * 5, 0)


def interrupted(rank: int, size: int, path: str) -> None:
    """Ctrl-C ends a wait at once, also the wait for ranks that have not come."""
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt_soon() -> float:
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        return time.monotonic()

    work = dist.irecv(torch.empty(1), (rank + 1) % size)
    start = interrupt_soon()
    with pytest.raises(KeyboardInterrupt):
        work.wait()
    assert time.monotonic() - start < 2
    assert not work.is_completed()
    dist.barrier()
    dist.send(torch.ones(1), (rank + 1) % size)
    work.wait()
    dist.destroy_process_group()
    start = interrupt_soon()
    with pytest.raises(KeyboardInterrupt):
        dist.init_process_group("dicomm", store=dist.FileStore(f"{path}/{rank}", 2), rank=rank, world_size=2)
    assert time.monotonic() - start < 2


def profiled(rank: int, size: int) -> list[str]:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        dist.all_reduce(torch.ones(2))
        dist.broadcast(torch.ones(2), 0)
    return [event.name for event in profile.events() if event.name.startswith("dicomm:")]


def test_dropped_works_still_happen(ranks) -> None:
    ranks(3, dropped_works_still_happen)


def test_futures(ranks) -> None:
    ranks(2, futures)
    ranks(3, futures)


def test_errors_reach_futures(ranks) -> None:
    ranks(2, errors_reach_futures)


def test_waiting_has_a_limit(ranks) -> None:
    ranks(2, waiting_has_a_limit)


def test_ctrl_c_ends_a_wait(ranks, tmp_path: Path) -> None:
    ranks(2, interrupted, path=str(tmp_path))


def test_the_profiler_sees_operations(ranks) -> None:
    assert ranks(2, profiled) == [["dicomm:all_reduce", "dicomm:broadcast"]] * 2
