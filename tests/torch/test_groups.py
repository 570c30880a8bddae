"""Groups: made, split, destroyed, made again, monitored, aborted, restarted."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

pytestmark = pytest.mark.timeout(60)


def total(group: dist.ProcessGroup | None = None) -> float:
    tensor = torch.tensor([float(dist.get_rank() + 1)])
    dist.all_reduce(tensor, group=group)
    return tensor.item()


def subgroups(rank: int, size: int) -> None:
    for members in ([0], [0, 1], [1, size - 1], list(range(size))):
        group = dist.new_group(members)
        if rank in members:
            assert total(group) == sum(r + 1 for r in members)
            dist.destroy_process_group(group)
        # The same ranks again: a group of another name that must not meet the first one's keys.
        again = dist.new_group(members)
        if rank in members:
            assert total(again) == sum(r + 1 for r in members)
    assert total() == sum(range(1, size + 1))
    _, subgroups = dist.new_subgroups(group_size=2)
    assert len(subgroups) == size // 2


def split(rank: int, size: int) -> None:
    world = dist.group.WORLD
    ranks = [0, 2] if rank in (0, 2) else [1, 3]
    part = world.split_group(ranks, group_name=f"part-{ranks[0]}")
    assert part.rank() == ranks.index(rank)
    tensor = torch.tensor([float(rank)])
    part.allreduce([tensor]).wait()
    assert tensor.item() == sum(ranks)
    part.shutdown()
    backend = world._get_backend(torch.device("cpu"))
    assert backend.supports_splitting
    assert backend.options.group_name != f"part-{ranks[0]}"
    copied = copy.deepcopy(backend.options)  # as dist.split_group does, which asks for an accelerator first
    assert (copied.backend, copied._timeout) == ("dicomm", backend.options._timeout)
    assert total() == sum(range(1, size + 1))


def mixed(rank: int, size: int) -> None:
    assert total() == sum(range(1, size + 1))
    subgroups(rank, size)


def refused(rank: int, size: int, meeting: str) -> None:
    """Chips are dealt out by rank, so the two brands are known here as they are to dicomm.init()."""
    brands = r"alpha with alpha-ccl 1 on ranks 0 \(.*\), 2 \(.*\), beta with beta-ccl 1 on rank 1 \("
    with pytest.raises(ValueError, match=f"island 'x' would hold {brands}"):
        dist.init_process_group("dicomm", init_method=meeting, rank=rank, world_size=size)


def made_again(rank: int, size: int, port: int) -> None:
    store = dist.TCPStore("127.0.0.1", port, is_master=False) if rank else None
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", port, is_master=True)
    for _ in range(3):  # the same name over the same store
        dist.init_process_group("dicomm", store=store, rank=rank, world_size=size)
        assert total() == sum(range(1, size + 1))
        dist.destroy_process_group()
    store.set(f"left-{rank}", "")
    if rank == 0:
        store.wait([f"left-{r}" for r in range(size)])


def monitored(rank: int, size: int) -> None:
    dist.monitored_barrier()
    dist.monitored_barrier(timeout=timedelta(seconds=5), wait_all_ranks=True)
    if rank == 0:
        with pytest.raises(RuntimeError, match="Ranks 1, 2 failed to pass monitoredBarrier in 300 ms"):
            dist.monitored_barrier(timeout=timedelta(seconds=0.3), wait_all_ranks=True)
        with pytest.raises(RuntimeError, match="Rank 1 failed to pass monitoredBarrier"):
            dist.monitored_barrier(timeout=0.3)
    else:
        time.sleep(1)
    dist.barrier()


def time_out(rank: int, size: int) -> None:
    group = dist.new_group(timeout=timedelta(seconds=100))
    group.set_timeout(timedelta(seconds=0.4))
    if rank == 0:
        start = time.monotonic()
        with pytest.raises(dist.DistBackendError, match=" Timed out "):
            dist.barrier(group=group)
        assert 0.35 < time.monotonic() - start < 2
    else:
        time.sleep(1)
    dist.barrier()


def aborted(rank: int, size: int) -> None:
    """abort() wakes a waiter in another thread, here and on the other ranks."""
    group = dist.new_group()
    dist.barrier()
    if rank == 0:
        timer = threading.Timer(0.3, lambda: group.abort())
        timer.start()
    start = time.monotonic()
    with pytest.raises(dist.DistBackendError, match="abort"):
        dist.recv(torch.empty(1), (rank + 1) % size, group=group)
    assert time.monotonic() - start < 5
    dist.barrier()


def lost(rank: int, size: int) -> None:
    if rank == 1:
        os._exit(3)
    start = time.monotonic()
    with pytest.raises(dist.DistBackendError, match="rank 1"):
        dist.all_reduce(torch.ones(1))
    assert time.monotonic() - start < 3
    Path(os.environ["SEEN"], f"{rank}").touch()


def missing(rank: int, size: int, path: str) -> None:
    if rank == 2:
        return
    store = dist.FileStore(path, size)
    with pytest.raises(dist.DistBackendError, match=r"\b2\b"):
        dist.init_process_group(
            "dicomm", store=store, rank=rank, world_size=size, timeout=timedelta(seconds=1.5)
        )


def desynchronized(rank: int, size: int) -> None:
    """TORCH_DISTRIBUTED_DEBUG=DETAIL wraps the backend; what it checks and what it passes on both work."""
    assert total() == sum(range(1, size + 1))
    dist.barrier()
    parts = [torch.empty(2) for _ in range(size)]
    dist.all_gather(parts, torch.full((2,), float(rank)))
    assert [part[0].item() for part in parts] == list(range(size))
    with pytest.raises(RuntimeError, match="mismatch"):
        dist.all_reduce(torch.ones(2 + rank))


def mismatched(rank: int, size: int) -> None:
    """Without it, dicomm's own check names both calls."""
    group = dist.new_group()
    with pytest.raises(dist.DistBackendError, match=r"MISMATCH|mismatch|different"):
        dist.all_reduce(torch.ones(2 + rank), group=group)


def test_subgroups(ranks) -> None:
    ranks(4, subgroups)


def test_split(ranks) -> None:
    ranks(4, split)


def test_made_again_over_the_same_store(ranks, unused_port: int) -> None:
    ranks(2, made_again, backend=None, port=unused_port)


def test_monitored_barrier(ranks) -> None:
    ranks(3, monitored)


def test_time_out_can_be_changed(ranks) -> None:
    ranks(2, time_out)


def test_abort_wakes_everyone(ranks) -> None:
    ranks(2, aborted)


def test_a_lost_rank_is_named(ranks, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="rank 1 failed"):
        ranks(3, lost, env={"SEEN": str(tmp_path)})
    assert {path.name for path in tmp_path.iterdir()} == {"0", "2"}


def test_missing_ranks_are_named(ranks, tmp_path: Path) -> None:
    ranks(3, missing, backend=None, path=str(tmp_path / "store"))


def test_debug_detail(ranks) -> None:
    ranks(2, desynchronized, env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})


def test_mismatch_is_found(ranks) -> None:
    ranks(2, mismatched)


ELASTIC = """
import os, pathlib, sys
import torch, torch.distributed as dist
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
dist.init_process_group("dicomm")
tensor = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(tensor)
if attempt == 0 and dist.get_rank() == 1:
    os._exit(9)
dist.all_reduce(tensor)
pathlib.Path(sys.argv[1], f"{attempt}-{dist.get_rank()}").write_text(str(tensor.item()))
dist.destroy_process_group()
"""


def test_elastic_restart_over_the_same_store(tmp_path: Path) -> None:
    """torchrun keeps its store: the second attempt must not meet the dead one's keys."""
    script = tmp_path / "train.py"
    script.write_text(ELASTIC)
    command = [
        "--standalone",
        "--nproc-per-node=2",
        "--max-restarts=1",
        "--monitor-interval=0.1",
        str(script),
        str(tmp_path),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *command],
        env={**os.environ, "DICOMM_INTERFACE": "127.0.0.1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [(tmp_path / f"1-{rank}").read_text() for rank in (0, 1)] == ["6.0", "6.0"], done.stderr
    assert not list(tmp_path.glob("0-*"))


def test_groups_of_simulated_chips(ranks) -> None:
    ranks(4, mixed, env={"DICOMM_SIMULATE": "alpha,beta"})


def test_an_island_of_two_brands_is_refused_on_every_rank(ranks, tmp_path: Path) -> None:
    env = {"DICOMM_SIMULATE": "alpha,beta", "DICOMM_ISLAND": "x"}
    ranks(3, refused, backend=None, env=env, meeting=f"file://{tmp_path}/init")
