"""Tensors that are not in host memory, on a device made for these tests (host_device.cc)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from support import host_device

pytestmark = pytest.mark.timeout(120)


def begin(library: str, rank: int, size: int, meeting: str, chip: str, known: bool) -> None:
    """Makes the device torch's accelerator, for this rank's chip of this brand, and the default group.

    known: dicomm is told that tensors of the device are in the memory of such chips.
    """
    from dicomm.torch import devices

    host_device.use(library)
    os.environ["DICOMM_SIMULATE"] = chip
    if known:
        devices.VENDORS["hostdev"] = ("alpha", "beta")
    dist.init_process_group("dicomm", init_method=meeting, rank=rank, world_size=size)


def copies() -> int:
    return int(torch.ops.host_device.copies())


def same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=0)


def collectives(rank: int, size: int, device: str) -> None:
    """Every operation on tensors of this rank's device."""

    def mine(*values: float) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float32).to(device)

    numbers, total = torch.arange(size).float(), float(sum(range(size)))
    x = mine(rank, 1)
    dist.all_reduce(x)
    same(x, torch.tensor([total, size]))
    x = mine(rank, 5)
    dist.broadcast(x, size - 1)
    same(x, torch.tensor([size - 1.0, 5]))
    x = mine(rank)
    dist.reduce(x, 1)
    same(x, torch.tensor([total if rank == 1 else rank]).float())
    x = torch.empty(size).to(device)
    dist.all_gather_into_tensor(x, mine(rank))
    same(x, numbers)
    parts = [torch.empty(r).to(device) for r in range(size)]
    dist.all_gather(parts, torch.full((rank,), float(rank)).to(device))
    for r, part in enumerate(parts):
        same(part, torch.full((r,), float(r)))
    x = torch.empty(1).to(device)
    dist.reduce_scatter_tensor(x, (numbers + rank).to(device))
    same(x, torch.tensor([rank * size + total]))
    x = torch.empty(size).to(device)
    dist.all_to_all_single(x, (numbers + 10 * rank).to(device))
    same(x, 10 * numbers + rank)
    parts = [torch.empty(1).to(device) for _ in range(size)]
    dist.gather(mine(rank), parts if rank == 0 else None, 0)
    if rank == 0:
        same(torch.cat([part.cpu() for part in parts]), numbers)
    x = torch.empty(1).to(device)
    dist.scatter(x, [mine(r) for r in range(size)] if rank == 0 else None, 0)
    same(x, torch.tensor([float(rank)]))
    x = torch.empty(1).to(device)
    ahead, behind = (rank + 1) % size, (rank - 1) % size
    ops = [dist.P2POp(dist.isend, mine(rank), ahead), dist.P2POp(dist.irecv, x, behind)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    same(x, torch.tensor([float(behind)]))
    things: list[object] = [None] * size
    dist.all_gather_object(things, rank)
    assert things == list(range(size))


def strided(rank: int, size: int, device: str) -> None:
    total = float(sum(range(size)))
    base = torch.zeros(4, 6).to(device)
    view = base[::2, 1::2].t()
    view.fill_(rank)
    work = dist.all_reduce(view, async_op=True)
    future = work.get_future().then(lambda done: done.value()[0].cpu() + 1)
    same(future.wait(), torch.full((3, 2), total + 1))
    same(view, torch.full((3, 2), total))
    assert base.cpu()[1].abs().sum() == 0
    whole = torch.empty(3, size).to(device).t()
    dist.all_gather_into_tensor(whole, torch.tensor([float(rank)]).to(device).expand(1, 3))
    same(whole, torch.arange(size).float().unsqueeze(1).expand(size, 3).contiguous())
    sparse = torch.sparse_coo_tensor([[rank, size]], [1.0, 2.0], (size + 1,))
    dist.all_reduce(sparse)
    same(sparse.to_dense(), torch.tensor([1.0] * size + [2.0 * size]))


def on_the_chip(rank: int, size: int, library: str, meeting: str) -> None:
    begin(library, rank, size, meeting, "alpha,alpha,beta", True)
    x = torch.full((1000,), float(rank)).to("hostdev:0")
    before = copies()
    dist.all_reduce(x)
    whole = torch.empty(size * 1000, device="hostdev:0")
    dist.all_gather_into_tensor(whole, x)
    assert copies() == before  # dicomm itself reads and writes the chip's memory
    same(whole, torch.full((size * 1000,), float(sum(range(size)))))
    collectives(rank, size, "hostdev:0")
    strided(rank, size, "hostdev:0")
    x = torch.ones(3).to("hostdev:1")  # not this rank's chip
    before = copies()
    dist.all_reduce(x)
    assert copies() == before + 2  # to the host and back
    same(x, torch.full((3,), float(size)))


def through_the_host(rank: int, size: int, library: str, meeting: str) -> None:
    """A device that dicomm has no run time for."""
    begin(library, rank, size, meeting, "", False)
    collectives(rank, size, "hostdev:1")
    strided(rank, size, "hostdev:1")
    x = torch.ones(3).to("hostdev:1")
    before = copies()
    dist.all_reduce(x)
    assert copies() == before + 2
    same(x, torch.full((3,), float(size)))


def of_two_types(rank: int, size: int, library: str, meeting: str) -> None:
    """The last rank has no chip and passes CPU tensors."""
    from test_training import check_equal, network, train

    device = "cpu" if rank == size - 1 else "hostdev:0"
    if device == "cpu":
        dist.init_process_group("dicomm", init_method=meeting, rank=rank, world_size=size)
    else:
        begin(library, rank, size, meeting, "alpha,beta", True)
    collectives(rank, size, device)
    strided(rank, size, device)
    model = DistributedDataParallel(network().to(device))
    train(model, rank, device=device)
    check_equal(model.module.cpu(), size)


def to_the_vendor(rank: int, size: int, library: str, meeting: str) -> None:
    """gloo stands for the vendor's backend. It refuses such tensors, which tells that they reached it."""
    groups: list[str] = []

    def create(options: object, _: object) -> dist.Backend:
        groups.append(options.group_id)  # type: ignore[attr-defined]
        return dist.distributed_c10d.ProcessGroupGloo(
            options.store, options.group_rank, options.group_size, timeout=options.timeout
        )

    dist.Backend.register_backend("vendor", create, extended_api=True, devices=["hostdev"])
    begin(library, rank, size, meeting, "alpha,beta,alpha", True)
    assert groups == []  # mixed
    x = torch.ones(2).to("hostdev:0")
    dist.all_reduce(x)
    same(x, torch.full((2,), float(size)))
    island = dist.new_group([0, 2])
    if rank != 1:
        assert len(groups) == 1
        with pytest.raises((RuntimeError, ValueError), match=r"CPU|cpu|device"):
            dist.all_reduce(x, group=island)
        on_host = torch.ones(2)
        dist.all_reduce(on_host, group=island)
        same(on_host, torch.full((2,), 2.0))


def meeting(tmp_path: Path) -> str:
    return f"file://{tmp_path}/init"


@pytest.mark.parametrize(
    "function", [on_the_chip, through_the_host, of_two_types, to_the_vendor], ids=lambda f: f.__name__
)
def test_tensors_of_a_device(ranks, host_device_library: Path, tmp_path: Path, function) -> None:
    library = str(host_device_library)
    ranks(3, function, backend=None, timeout=60, library=library, meeting=meeting(tmp_path))
