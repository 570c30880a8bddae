"""DDP workers whose gradients are averaged with the help of processes that only reduce."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from support.digits import losses, save_digits

pytestmark = pytest.mark.timeout(90)


def join(rank: int, size: int, directory: str, workers: int):
    """A communicator of all ranks; the workers, which come first, also make a process group of their own."""
    import dicomm

    config = dataclasses.replace(
        dicomm.Config.from_environment(), role="worker" if rank < workers else "reducer"
    )
    comm = dicomm.init(f"file://{directory}/helped", rank=rank, size=size, config=config, timeout=30)
    if rank < workers:
        dist.init_process_group(
            "gloo", init_method=f"file://{directory}/workers", rank=rank, world_size=workers
        )
    return comm


def helped(rank: int, size: int, directory: str, data: str, workers: int, bucket_mb: float) -> list[float]:
    from dicomm.torch.ddp import Averaging, average

    with join(rank, size, directory, workers) as comm:
        if comm.role == "reducer":
            comm.serve()
            assert comm.stats()["seq"] >= 20
            return []
        hook = Averaging(comm), average
        return losses(rank, workers, data, lambda model: model.register_comm_hook(*hook), bucket_mb)


@pytest.mark.parametrize(("reducers", "bucket_mb"), [(1, 25.0), (3, 1e-3)])
def test_losses_equal_those_of_gloo_among_the_workers(
    ranks, tmp_path: Path, reducers: int, bucket_mb: float
) -> None:
    data = save_digits(tmp_path)
    ours = ranks(
        2 + reducers,
        helped,
        backend=None,
        directory=str(tmp_path),
        data=data,
        workers=2,
        bucket_mb=bucket_mb,
        timeout=60,
    )
    theirs = ranks(2, losses, backend="gloo", data=data)
    assert ours[0] == ours[1]
    assert ours[2:] == [[]] * reducers
    assert ours[0][-1] < 0.4 < 2 < ours[0][0]
    assert ours[0] == pytest.approx(theirs[0], rel=1e-4)


def fails(rank: int, size: int, directory: str) -> None:
    import dicomm
    from dicomm.torch.ddp import Averaging, average

    comm = join(rank, size, directory, 2)
    if comm.role == "reducer":
        for worker in range(2):
            comm.recv(np.empty(1), worker)
        comm.abort("the reducer gives up")
    else:
        model = DistributedDataParallel(nn.Linear(4, 4))
        model.register_comm_hook(Averaging(comm), average)
        comm.send(np.zeros(1), 2)
        with pytest.raises((dicomm.Aborted, RuntimeError), match="the reducer gives up"):
            model(torch.ones(1, 4)).sum().backward()
    comm.close()


def test_a_failure_is_raised_by_backward(ranks, tmp_path: Path) -> None:
    ranks(3, fails, backend=None, directory=str(tmp_path))


def refused(rank: int, size: int, directory: str) -> None:
    with pytest.raises(Exception, match=r"this process is a reducer .* serve"):
        dist.init_process_group("dicomm", init_method=f"file://{directory}/x", rank=0, world_size=1)


def test_a_reducer_has_no_place_in_a_process_group(ranks, tmp_path: Path) -> None:
    ranks(1, refused, backend=None, env={"DICOMM_ROLE": "reducer"}, directory=str(tmp_path))
