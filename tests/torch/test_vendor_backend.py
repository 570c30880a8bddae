"""Groups that are one island have the vendor's own torch backend: gloo stands for it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist

pytestmark = pytest.mark.timeout(60)

ISLANDS = {"DICOMM_SIMULATE": "alpha:2,beta:2", "DICOMM_TORCH_ISLAND_BACKEND": "cpu:gloo"}


def served_by(group: dist.ProcessGroup | None, tensor: torch.Tensor) -> str:
    """The backend that all_reduce's profiler event names."""
    with torch.autograd.profiler.profile() as profile:
        dist.all_reduce(tensor, group=group)
    names = {event.name for event in profile.function_events}
    known = ("gloo", "nccl", "dicomm")
    found = {backend for backend in known if f"{backend}:all_reduce" in names}
    assert len(found) == 1, names
    return found.pop()


def who_serves(rank: int, size: int, meeting: str) -> None:
    """With a backend as vendors' packages register theirs."""
    made: list[str] = []

    def create(options: object, _: object) -> dist.Backend:
        made.append(options.group_id)  # type: ignore[attr-defined]
        return dist.distributed_c10d.ProcessGroupGloo(
            options.store, options.group_rank, options.group_size, timeout=options.timeout
        )

    dist.Backend.register_backend("counted", create, extended_api=True, devices=["cpu"])
    dist.init_process_group("dicomm", init_method=meeting, rank=rank, world_size=size)
    mine, other = ([0, 1], [2, 3]) if rank < 2 else ([2, 3], [0, 1])
    assert served_by(None, torch.ones(3)) == "dicomm"  # mixed
    groups = {str(ranks): dist.new_group(ranks) for ranks in sorted([mine, other])}
    x = torch.full((3,), float(rank))
    assert served_by(groups[str(mine)], x) == "gloo"
    assert x.tolist() == [float(sum(mine))] * 3
    across = dist.new_group([0, 2])
    if rank in (0, 2):
        assert served_by(across, torch.ones(1)) == "dicomm"
    part = dist.group.WORLD.split_group(mine, group_name=f"part-{mine[0]}")
    work = part.allreduce([x.fill_(1)])
    work.wait()
    assert x.tolist() == [2.0] * 3
    assert made[1:] == [f"part-{mine[0]}"]  # once, though torch asks for every device type
    part.shutdown()
    dist.destroy_process_group(groups[str(mine)])
    again = {str(ranks): dist.new_group(ranks) for ranks in sorted([mine, other])}
    assert served_by(again[str(mine)], torch.ones(1)) == "gloo"


def every_operation(rank: int, size: int) -> None:
    """In the default group, which is one island."""
    numbers, total = torch.arange(size).float(), float(sum(range(size)))

    def mine() -> torch.Tensor:
        return torch.tensor([float(rank)])

    x = mine()
    assert served_by(None, x) == "gloo"
    assert x.item() == total
    x = mine()
    dist.broadcast(x, 1)
    assert x.item() == 1
    x = mine()
    dist.reduce(x, 0)
    assert rank != 0 or x.item() == total
    x = torch.empty(size)
    dist.all_gather_into_tensor(x, mine())
    assert x.equal(numbers)
    parts = [torch.empty(1) for _ in range(size)]
    dist.all_gather(parts, mine())
    assert torch.cat(parts).equal(numbers)
    x = torch.empty(1)
    dist.reduce_scatter_tensor(x, numbers + rank)
    assert x.item() == rank * size + total
    x = torch.empty(1)
    dist.reduce_scatter(x, list((numbers + rank).chunk(size)))
    assert x.item() == rank * size + total
    x = torch.empty(size)
    dist.all_to_all_single(x, numbers + 10 * rank)
    assert x.equal(10 * numbers + rank)
    parts = [torch.empty(1) for _ in range(size)]
    dist.gather(mine(), parts if rank == 0 else None, 0)
    assert rank != 0 or torch.cat(parts).equal(numbers)
    x = torch.empty(1)
    dist.scatter(x, list(numbers.chunk(size)) if rank == 0 else None, 0)
    assert x.item() == rank
    x = torch.empty(1)
    ahead, behind = (rank + 1) % size, (rank - 1) % size
    ops = [dist.P2POp(dist.isend, mine(), ahead), dist.P2POp(dist.irecv, x, behind)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert x.item() == behind
    tensors = [torch.full((n,), float(rank)) for n in (1, 5)]
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        for tensor in tensors:
            dist.broadcast(tensor, 1)
    manager.wait()
    assert all((tensor == 1).all() for tensor in tensors)
    things: list[object] = [None] * size
    dist.all_gather_object(things, {"rank": rank})
    assert things == [{"rank": r} for r in range(size)]
    dist.barrier()
    dist.monitored_barrier()


def unknown(rank: int, size: int, meeting: str) -> None:
    with pytest.raises(ValueError, match=r"no backend 'nobody'.*import the vendor's package first"):
        dist.init_process_group("dicomm", init_method=meeting, rank=rank, world_size=size)


def test_islands_of_a_mixed_job(ranks, tmp_path: Path) -> None:
    env = {**ISLANDS, "DICOMM_TORCH_ISLAND_BACKEND": "cpu:counted"}
    ranks(4, who_serves, backend=None, env=env, meeting=f"file://{tmp_path}/init")


def test_every_operation(ranks) -> None:
    ranks(2, every_operation, env=ISLANDS)


def test_a_backend_that_torch_does_not_know(ranks, tmp_path: Path) -> None:
    env = {**ISLANDS, "DICOMM_TORCH_ISLAND_BACKEND": "cpu:nobody"}
    ranks(2, unknown, backend=None, env=env, meeting=f"file://{tmp_path}/init")
